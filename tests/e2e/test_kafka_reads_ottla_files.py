"""Files of Ottla and of Apache Kafka: DumpLogSegments finds no fault in those of Ottla, Ottla's
log code reads a partition folder that Kafka wrote and appends to it, and Kafka's broker serves one
that Ottla wrote.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla_broker.log.config import LogConfig
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import LogCheckpoint
from ottla_broker.runtime import uuid_from_text
from ottla_broker.wire.batch import Compression, iter_batches
from ottla_broker.wire.records import iter_records
from tests.brokers import BrokerProcess, run_apache_kafka
from tests.e2e.dump_log_segments import assert_no_faults, dump_log_segments, join_files
from tests.kafka_folders import CLUSTER_ID
from tests.log_dirs import open_log_dir
from tests.unit.log.log_fixtures import NOW, TOPIC_ID, LogFolder, append_committed, batch, marker

SMALL = LogConfig(segment_bytes=16_000, index_interval_bytes=500, message_timestamp_after_max_ms=2**62)


def inspect(folder: Path) -> dict[str, int]:
    """Runs every check of DumpLogSegments on a partition folder, and asserts that none finds a
    fault. Returns the numbers of batches, records and index entries that it read.
    """
    segments = dump_log_segments("--deep-iteration", "--files", join_files(folder, ".log"))
    assert_no_faults(segments)
    indexes = join_files(folder, ".index") + "," + join_files(folder, ".timeindex")
    assert_no_faults(checked := dump_log_segments("--index-sanity-check", "--files", indexes))
    assert checked.count("passed sanity check") == len(indexes.split(","))
    assert_no_faults(dump_log_segments("--verify-index-only", "--files", indexes))
    assert_no_faults(entries := dump_log_segments("--files", indexes))
    return {
        "batches": segments.count("baseOffset: "),
        "records": len(re.findall(r"^\| offset: ", segments, re.MULTILINE)),
        "offsets": len(re.findall(r"^offset: \d+ position: ", entries, re.MULTILINE)),
        "times": len(re.findall(r"^timestamp: \d+ offset: ", entries, re.MULTILINE)),
    }


def fill_log(log: PartitionLog, rounds: int = 60, *, first_producer: int = 7) -> None:
    """Appends what a partition may hold: all codecs, idempotent producers, committed and aborted
    transactions, several leader epochs, and timestamps that decrease.
    """
    sequences = {first_producer: 0, first_producer + 1: 0}
    latest = max(log.epochs.latest_epoch(), 0)
    for n in range(rounds):
        when = NOW + n * 1_000 - (n % 7) * 2_500
        codec = list(Compression)[n % 5]
        append_committed(
            log, batch(1 + n % 4, timestamp=when, size=100 + n, compression=codec, step_ms=3), epoch=latest + n // 10
        )
        for producer in sequences:
            sent = batch(2, timestamp=when, size=40, producer=(producer, 0, sequences[producer]), transactional=True)
            append_committed(log, sent, epoch=latest + n // 10)
            sequences[producer] += 2
        for producer in sequences:
            append_committed(
                log,
                marker((n + producer - first_producer) % 3 != 0, producer),
                epoch=latest + n // 10,
                from_client=False,
            )
        append_committed(log, batch(3, timestamp=when, producer=(first_producer + 2, 1, 3 * n)), epoch=latest + n // 10)


def open_small_log_dir(path: Path) -> LogDir:
    return open_log_dir(path, cluster_id=CLUSTER_ID, config_of=lambda _: SMALL)


@pytest.fixture(scope="module")
def ottla_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ottla's log directory after a clean shutdown, with the partition `made-0`."""
    path = tmp_path_factory.mktemp("ours")
    directory = open_small_log_dir(path)
    fill_log(directory.create_log("made", 0, TOPIC_ID, SMALL))
    asyncio.run(directory.close())
    yield path


def test_dump_finds_no_fault_after_a_clean_shutdown(ottla_folder: Path) -> None:
    counts = inspect(ottla_folder / "made-0")
    assert counts["batches"] == 60 * 6
    assert counts["records"] > 60 * 7 and counts["offsets"] > 20 and counts["times"] > 5


def test_dump_finds_a_wrong_index_entry(ottla_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made-0"
    shutil.copytree(ottla_folder / "made-0", folder)
    path = sorted(folder.glob("*.index"))[0]
    data = bytearray(path.read_bytes())
    data[7] += 1  # the first entry's position
    path.write_bytes(data)
    with pytest.raises(AssertionError):
        inspect(folder)


def test_dump_reads_producer_snapshots_and_aborted_transactions(ottla_folder: Path) -> None:
    folder = ottla_folder / "made-0"
    snapshots = sorted(folder.glob("*.snapshot"))
    output = dump_log_segments("--files", str(snapshots[-1]))
    assert_no_faults(output)
    assert re.findall(r"producerId: (\d+) producerEpoch: (\d+)", output) == [("7", "0"), ("8", "0"), ("9", "1")]
    assert "lastSequence" in output
    output = dump_log_segments("--files", join_files(folder, ".txnindex"))
    assert_no_faults(output)
    aborted = LogFolder(str(folder)).reopen(LogCheckpoint(clean=True)).aborted_transactions(0, 10**9)
    entries = re.findall(r"producerId: \d+ firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+", output)
    assert aborted and len(entries) == len(aborted)


def test_dump_finds_no_fault_after_recovery_of_a_torn_tail(tmp_path: Path) -> None:
    log_folder = LogFolder(str(tmp_path / "made-0"), SMALL)
    fill_log(log_folder.create())
    last = sorted(tmp_path.glob("made-0/*.log"))[-1]
    os.truncate(last, last.stat().st_size - 50)
    recovered = log_folder.reopen(LogCheckpoint(recovery_point=300))
    assert recovered.failure is None
    fill_log(recovered, 5, first_producer=20)
    recovered.close()
    inspect(tmp_path / "made-0")


def test_dump_finds_no_fault_after_truncation_and_retention(tmp_path: Path) -> None:
    log = LogFolder(str(tmp_path / "made-0"), SMALL).create()
    fill_log(log)
    log.truncate_to(log.end // 2)
    fill_log(log, 10, first_producer=20)
    log.delete_records_before(200)
    log.apply_retention(NOW)
    log.close()
    inspect(tmp_path / "made-0")


# --- partition folders that move between brokers


@dataclass
class KafkaTopic:
    """A topic that Apache Kafka wrote, and its values as clients of Kafka read them."""

    folder: Path
    topic_id: UUID
    values: list[bytes]  # all
    committed: list[bytes]  # with read_committed


def consume_values(broker: BrokerProcess, topic: str, isolation: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while (message := consumer.poll(30)) is not None:
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return values
            values.append(message.value() or b"")
        raise AssertionError(f"no end of {topic} in 30 s; {len(values)} read")
    finally:
        consumer.close()


def produce_with_every_codec(broker: BrokerProcess, topic: str) -> None:
    """Creates the topic and writes batches of every codec, then committed and aborted
    transactions.
    """
    config = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                "batch.num.messages": 50,
            }
        )
        for n in range(500):
            producer.produce(topic, f"{codec} {n} ".encode() + b"x" * 300, key=str(n).encode(), partition=0)
        assert producer.flush(30) == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "teller"})
    producer.init_transactions(30)
    for n in range(6):
        producer.begin_transaction()
        for m in range(5):
            producer.produce(topic, f"transaction {n} {m}".encode(), partition=0)
        producer.flush(30)
        if n % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def create_kafka_topic(folder: Path, topic: str, crash: bool) -> KafkaTopic:
    with run_apache_kafka(folder=folder) as broker:
        produce_with_every_codec(broker, topic)
        values = consume_values(broker, topic, "read_uncommitted")
        committed = consume_values(broker, topic, "read_committed")
        if crash:
            broker.kill()
        else:
            broker.stop()
        partition = broker.log_dir / f"{topic}-0"
        text = (partition / "partition.metadata").read_text()
        return KafkaTopic(partition, uuid_from_text(text.split("topic_id: ")[1].strip()), values, committed)


@pytest.mark.parametrize("crash", [pytest.param(False, marks=pytest.mark.slow), True], ids=["stopped", "killed"])
def test_ottla_reads_and_appends_to_a_partition_folder_of_kafka(tmp_path: Path, crash: bool) -> None:
    topic = create_kafka_topic(tmp_path, "theirs", crash)
    assert len(topic.values) == 2_530 and len(topic.committed) == 2_515
    directory = open_small_log_dir(tmp_path / "data")
    assert directory.was_clean_shutdown is not crash
    assert directory.cluster_id == CLUSTER_ID
    assert {key: log.failure for key, log in directory.logs.items() if log.failure} == {}
    log = directory.logs["theirs", 0]
    assert log.topic_id == topic.topic_id
    log.advance_high_watermark(log.end)
    assert read_values(log, committed=False) == topic.values
    assert log.last_stable_offset == log.end
    assert read_values(log, committed=True) == topic.committed
    assert len(list(log.producers)) == 6, "an idempotent producer for each codec and a transactional one"
    fill_log(log, 3, first_producer=9_000_000)
    asyncio.run(directory.close())
    inspect(topic.folder)


def read_values(log: PartitionLog, *, committed: bool) -> list[bytes]:
    """Values as a client reads them: without control records and, if `committed`, without aborted
    records.
    """
    values: list[bytes] = []
    at = log.start
    while at < log.end:
        data = log.read(at, 100_000, up_to=log.last_stable_offset if committed else log.end)
        last = max(header.last_offset for _, header in iter_batches(data))
        aborted = log.aborted_transactions(at, last + 1) if committed else []
        for header, record in iter_records(data):
            is_aborted = header.is_transactional and any(
                a.producer_id == header.producer_id and a.first_offset <= record.offset < a.last_offset for a in aborted
            )
            if not header.is_control and not is_aborted:
                values.append(record.value or b"")
        at = last + 1
    return values


@pytest.mark.parametrize("crash", [pytest.param(False, marks=pytest.mark.slow), True], ids=["stopped", "killed"])
def test_kafka_serves_a_partition_folder_of_ottla(tmp_path: Path, ottla_folder: Path, crash: bool) -> None:
    with run_apache_kafka(folder=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("made", 1, 1)])["made"].result(30)
        broker.stop()
        partition = broker.log_dir / "made-0"
        metadata = (partition / "partition.metadata").read_bytes()
        shutil.rmtree(partition)
        shutil.copytree(ottla_folder / "made-0", partition)
        (partition / "partition.metadata").write_bytes(metadata)
        if crash:
            (broker.log_dir / ".kafka_cleanshutdown").unlink()
        broker.start()
        log = LogFolder(str(ottla_folder / "made-0")).reopen(LogCheckpoint(clean=True))
        log.advance_high_watermark(log.end)
        assert consume_values(broker, "made", "read_uncommitted") == read_values(log, committed=False)
        assert consume_values(broker, "made", "read_committed") == read_values(log, committed=True)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("made", b"after the move", partition=0)
        assert producer.flush(30) == 0
        assert consume_values(broker, "made", "read_committed")[-1] == b"after the move"
        errors = [line for line in broker.log_tail(200_000).splitlines() if "ERROR" in line or "orrupt" in line]
        assert not errors, "\n".join(errors[:20])
