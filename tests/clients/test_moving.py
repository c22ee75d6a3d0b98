"""Partition folders that move from Apache Kafka to Ottla and back.

A broker that starts for the first time on a folder with partitions and without cluster metadata
takes them as topics, each with the id of its `partition.metadata`.
"""

import shutil
import subprocess
import time
from collections.abc import Callable

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import COMPRESSIONS, Message, messages
from tests.e2e.dump_log_segments import assert_no_faults, dump_log_segments, join_files
from tests.jars import java_command
from tests.segments import segment_sizes
from tests.waiting import eventually

TOPIC, PLAIN = "moved", "plain"
NOW_MS = int(time.time() * 1000)
LARGE = bytes(range(256)) * 400  # 100 KiB
ENDS = (
    pytest.param(BrokerProcess.stop, marks=pytest.mark.slow, id="stopped"),
    pytest.param(BrokerProcess.kill, id="killed"),
)


def write_transactions(broker: BrokerProcess) -> dict[int, list[bytes]]:
    """Writes committed, aborted and interleaved transactions to two partitions; returns their
    committed values.
    """
    rd.create_topic(broker.bootstrap, TOPIC, 2, segment_bytes=1048576)
    committed: dict[int, list[bytes]] = {0: [], 1: []}
    producers = [
        ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"t{number}", "compression.type": kind})
        for number, kind in enumerate(["none", "lz4"])
    ]
    for producer in producers:
        producer.init_transactions(30)
    for turn in range(5):
        for producer in producers:
            producer.begin_transaction()
        for number in range(20):
            for producer_number, producer in enumerate(producers):
                producer.produce(
                    TOPIC, b"%d %d %d " % (producer_number, turn, number) + b"x" * 3000, partition=number % 2
                )
        for producer_number, producer in enumerate(producers):
            producer.flush(30)
            if (turn + producer_number) % 3:
                producer.commit_transaction(30)
                for number in range(20):
                    committed[number % 2].append(b"%d %d %d " % (producer_number, turn, number) + b"x" * 3000)
            else:
                producer.abort_transaction(30)
    return committed


def read(broker: BrokerProcess, partition: int, isolation: str) -> list[bytes]:
    return [
        value or b""
        for value in rd.values_of(rd.consume(broker.bootstrap, TOPIC, partition=partition, isolation_level=isolation))
    ]


@pytest.mark.parametrize("end", ENDS)
def test_partition_folder_of_kafka_with_transactions_is_served(
    broker_kind: str, classpath: str, end: Callable[[BrokerProcess], object]
) -> None:
    if broker_kind == "kafka":
        pytest.skip("Apache Kafka does not take over partition folders that it does not know")
    with run_apache_kafka() as kafka:
        committed = write_transactions(kafka)
        rd.create_topic(kafka.bootstrap, PLAIN)
        for kind in COMPRESSIONS:
            rd.produce(kafka.bootstrap, PLAIN, messages(), compression_type=kind, enable_idempotence=True)
        hanging = ck.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "hanging", "log_level": 0})
        hanging.init_transactions(30)
        hanging.begin_transaction()
        hanging.produce(TOPIC, b"never ended", partition=0)
        hanging.flush(30)
        everything = {partition: read(kafka, partition, "read_uncommitted") for partition in (0, 1)}
        ids = {topic: rd.topic_id(kafka.bootstrap, topic) for topic in (TOPIC, PLAIN)}
        end(kafka)
        with run_ottla_broker(start=False) as ottla:
            for folder in (f"{TOPIC}-0", f"{TOPIC}-1", f"{PLAIN}-0"):
                shutil.copytree(kafka.log_dir / folder, ottla.log_dir / folder)
            ottla.start()
            assert {topic: rd.topic_id(ottla.bootstrap, topic) for topic in ids} == ids
            for partition in (0, 1):
                assert sorted(read(ottla, partition, "read_committed")) == sorted(committed[partition])
                assert read(ottla, partition, "read_uncommitted") == everything[partition]
            assert sorted(_read_with_java(ottla, classpath)) == sorted(committed[0] + committed[1])
            rd.produce(ottla.bootstrap, TOPIC, [Message(None, b"after all", NOW_MS)])
            assert read(ottla, 0, "read_committed")[-1] == b"after all", (
                "the open transaction holds no reader back, because its cluster is gone"
            )
            assert rd.to_messages(rd.consume(ottla.bootstrap, PLAIN)) == messages() * len(COMPRESSIONS)
            assert rd.produce(ottla.bootstrap, PLAIN, messages())[0] == 50 * len(COMPRESSIONS)


def test_partition_folder_compacted_by_kafka_survives_sigkill(broker_kind: str, classpath: str) -> None:
    """Kafka's compaction leaves gaps between segments. In a log that Ottla has written they would
    be lost records.

    Tested with and without the checkpoint of recovery points.
    """
    if broker_kind == "kafka":
        pytest.skip("Apache Kafka does not take over partition folders that it does not know")
    with run_apache_kafka(log_cleaner_backoff_ms=100, log_segment_delete_delay_ms=100) as kafka:
        rd.create_topic(
            kafka.bootstrap, PLAIN, segment_bytes=1048576, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01
        )
        for key in (b"old", b"new"):
            rd.produce(kafka.bootstrap, PLAIN, [Message(key, b"%d" % n + LARGE, NOW_MS) for n in range(45)])
        folder = kafka.log_dir / f"{PLAIN}-0"
        eventually(lambda: segment_sizes(folder).count(0) >= 2, message="emptied segments")
        kafka.kill()
        with run_ottla_broker(start=False) as ottla:
            shutil.copytree(folder, ottla.log_dir / folder.name)
            ottla.start()
            before = offsets(ottla)
            before += rd.produce(ottla.bootstrap, PLAIN, [Message(b"ours", b"", NOW_MS)])
            assert before[-1] == 90
            ottla.kill()
            ottla.start()
            assert offsets(ottla) == before
            assert sorted(read_keys_with_java(ottla, classpath)) == [b"new", b"old", b"ours"]
            ottla.kill()
            (ottla.log_dir / "recovery-point-offset-checkpoint").unlink()
            ottla.start()
            assert offsets(ottla) == before
            segments = join_files(ottla.log_dir / folder.name, ".log")
            assert_no_faults(dump_log_segments("--deep-iteration", "--files", segments))


def read_keys_with_java(broker: BrokerProcess, classpath: str) -> set[bytes]:
    command = java_command(
        classpath, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap
    )
    command += ["--topic", PLAIN, "--from-beginning", "--timeout-ms", "3000", "--property", "print.key=true"]
    done = subprocess.run([*command, "--property", "print.value=false"], capture_output=True, timeout=60, check=False)
    return set(done.stdout.splitlines())


def offsets(broker: BrokerProcess) -> list[int]:
    return [message.offset() for message in rd.consume(broker.bootstrap, PLAIN)]


@pytest.mark.parametrize("end", ENDS)
def test_kafka_serves_partition_folder_of_ottla(new_broker: NewBroker, end: Callable[[BrokerProcess], object]) -> None:
    with new_broker() as ours, run_apache_kafka() as kafka:
        rd.create_topic(ours.bootstrap, TOPIC, 1, segment_bytes=1048576)
        rd.create_topic(kafka.bootstrap, TOPIC, 1, segment_bytes=1048576)
        for kind in COMPRESSIONS:
            rd.produce(ours.bootstrap, TOPIC, messages(), compression_type=kind, enable_idempotence=True)
        for _ in range(2):
            rd.produce(ours.bootstrap, TOPIC, rd.numbered_messages(0, 3000))
        before = rd.to_messages(rd.consume(ours.bootstrap, TOPIC))
        end(ours)
        kafka.stop()
        kafka_folder, ottla_folder = kafka.log_dir / f"{TOPIC}-0", ours.log_dir / f"{TOPIC}-0"
        identity = (kafka_folder / "partition.metadata").read_bytes()  # belongs to the cluster, not to the log
        shutil.rmtree(kafka_folder)
        shutil.copytree(ottla_folder, kafka_folder)
        (kafka_folder / "partition.metadata").write_bytes(identity)
        if end is BrokerProcess.kill:
            (kafka.log_dir / ".kafka_cleanshutdown").unlink()
        kafka.start()
        assert rd.to_messages(rd.consume(kafka.bootstrap, TOPIC)) == before
        assert rd.produce(kafka.bootstrap, TOPIC, messages())[0] == len(before)
        newest = kafka.log_tail()
        assert "corrupt" not in newest.lower()


def _read_with_java(broker: BrokerProcess, classpath: str) -> list[bytes]:
    """Values that the Java consumer reads with read_committed, until three seconds
    without records.
    """
    command = java_command(
        classpath, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap
    )
    command += ["--topic", TOPIC, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "3000"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return done.stdout.splitlines()
