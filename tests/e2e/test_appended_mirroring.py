"""Sources are appended to one topic: every committed record arrives once and in its source's order,
even if brokers crash.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from tests.brokers import BROKERS, BrokerProcess, run_ottla_broker
from tests.e2e.dump_log_segments import dump_log_segments, join_files
from tests.e2e.mirroring import (
    append_topics,
    create_topic,
    delete_topics,
    list_topics,
    mirror_status,
    produce,
    read_records,
    read_watermarks,
    wait_for_high_watermark,
)
from tests.waiting import eventually

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def read_values(
    broker: BrokerProcess, topic: str, partition: int = 0, isolation: str = "read_uncommitted"
) -> list[bytes]:
    return [record.value or b"" for record in read_records(broker.bootstrap, topic, partition, isolation=isolation)]


def numbered_values(name: str, count: int, first: int = 0) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(first, first + count)]


def wait_for_values(target: BrokerProcess, topic: str, expected: dict[str, list[bytes]], partition: int = 0) -> None:
    """Waits until the partition has as many records as expected. Asserts that consumers of both
    isolation levels then read each source's records in order. `expected`: values by source; each
    begins with the source's name.
    """

    def count() -> int:
        return len(read_values(target, topic, partition))

    eventually(
        lambda: count() >= sum(map(len, expected.values())),
        within_s=40,
        message=lambda: f"{count()} records\n{target.log_tail(3000)}",
    )
    for isolation in ("read_uncommitted", "read_committed"):
        by_source: dict[str, list[bytes]] = {}
        for value in read_values(target, topic, partition, isolation):
            by_source.setdefault(value.split()[0].decode(), []).append(value)
        assert by_source == expected


@pytest.fixture(scope="module", params=["kafka", pytest.param("ottla", marks=pytest.mark.slow)])
def shared_west(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with BROKERS[request.param](log_cleaner_backoff_ms=200) as broker:
        yield broker


@pytest.fixture
def west(shared_west: BrokerProcess) -> BrokerProcess:
    """A source without topics."""
    delete_topics(shared_west)
    return shared_west


def test_two_sources_and_a_producer_share_a_topic(west: BrokerProcess) -> None:
    with run_ottla_broker() as east, run_ottla_broker() as target:
        for broker in (west, east):
            create_topic(broker, "flights", 2)
        for compression in COMPRESSIONS:
            produce(west.bootstrap, "flights", numbered_values("west", 60), compression_type=compression)
        produce(east.bootstrap, "flights", numbered_values("east", 300), enable_idempotence=True)
        append_topics(west, target, "west")
        append_topics(east, target, "east")
        expected = {"west": numbered_values("west", 60) * 5, "east": numbered_values("east", 300)}
        wait_for_values(target, "flights", expected)
        produce(target.bootstrap, "flights", numbered_values("ours", 50), enable_idempotence=True)
        wait_for_values(target, "flights", expected | {"ours": numbered_values("ours", 50)})
        for first, restart in ((300, BrokerProcess.restart), (400, kill_and_start)):
            restart(target)
            produce(east.bootstrap, "flights", numbered_values("east", 100, first))
            expected["east"] = numbered_values("east", first + 100)
            wait_for_values(target, "flights", expected | {"ours": numbered_values("ours", 50)})
        timestamps = {record.value: record.timestamp for record in read_records(east.bootstrap, "flights", 0)}
        copied = [
            record
            for record in read_records(target.bootstrap, "flights", 0)
            if (record.value or b"").startswith(b"east")
        ]
        assert {record.value: record.timestamp for record in copied} == timestamps


def kill_and_start(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def test_only_committed_transactions_of_kafka_are_appended() -> None:
    """Committed records are copied as soon as they are committed; aborted ones and markers are
    not.
    """
    with BROKERS["kafka"]() as west, run_ottla_broker() as target:
        create_topic(west, "money")
        append_topics(west, target, "west")
        producer = Producer({"bootstrap.servers": west.bootstrap, "transactional.id": "bank", "linger.ms": 0})
        producer.init_transactions(30)
        committed: list[bytes] = []
        for turn in range(12):
            producer.begin_transaction()
            values = numbered_values("bank", 7, turn * 7)
            for value in values:
                producer.produce("money", value, partition=0)
            if turn % 3:
                producer.commit_transaction(30)
                committed += values
            else:
                assert producer.flush(30) == 0
                producer.abort_transaction(30)
        wait_for_values(target, "money", {"bank": committed})
        producer.begin_transaction()
        producer.produce("money", b"bank open", partition=0)
        assert producer.flush(30) == 0
        target.restart()
        produce(target.bootstrap, "money", numbered_values("ours", 5))
        wait_for_values(target, "money", {"bank": committed, "ours": numbered_values("ours", 5)})
        producer.commit_transaction(30)
        wait_for_values(target, "money", {"bank": [*committed, b"bank open"], "ours": numbered_values("ours", 5)})
        target.stop()
        assert "isTransactional: true" not in dump_log(target, "money")


def test_source_position_survives_deletion_of_the_records(west: BrokerProcess) -> None:
    """Retention and DeleteRecords delete all mirrored records, and none is appended a second
    time.
    """
    with run_ottla_broker(log_retention_check_interval_ms=300, log_segment_bytes=20_000) as target:
        create_topic(west, "flights", 2)
        produce(west.bootstrap, "flights", numbered_values("west", 500))
        produce(west.bootstrap, "flights", numbered_values("west", 20), partition=1)
        append_topics(west, target, "west")
        wait_for_values(target, "flights", {"west": numbered_values("west", 500)})
        wait_for_values(target, "flights", {"west": numbered_values("west", 20)}, partition=1)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        end = TopicPartition("flights", 1, -1)
        admin.delete_records([end])[end].result(30)
        assert read_values(target, "flights", 1) == []
        target.restart()
        produce(west.bootstrap, "flights", numbered_values("west", 3, 20), partition=1)
        wait_for_values(target, "flights", {"west": numbered_values("west", 3, 20)}, partition=1)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        set_topic_config(admin, "flights", "retention.ms", "1")
        eventually(lambda: read_values(target, "flights") == [], within_s=30, message=lambda: target.log_tail(3000))
        set_topic_config(admin, "flights", "retention.ms", "-1")
        target.restart()
        produce(west.bootstrap, "flights", numbered_values("west", 3, 500))
        wait_for_values(target, "flights", {"west": numbered_values("west", 3, 500)})


def dump_log(broker: BrokerProcess, topic: str) -> str:
    """Output of Kafka's DumpLogSegments, which must accept the files."""
    output = dump_log_segments("--deep-iteration", "--files", join_files(broker.log_dir / f"{topic}-0", ".log"))
    assert "isvalid: true" in output and "isvalid: false" not in output, output
    return output


def set_topic_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_missing_partitions_are_reported_and_mirrored_once_they_exist(west: BrokerProcess) -> None:
    with run_ottla_broker() as target:
        create_topic(west, "flights", 3)
        create_topic(target, "flights", 2)
        for partition in range(3):
            produce(west.bootstrap, "flights", numbered_values("west", 10), partition=partition)
        append_topics(west, target, "west")
        for partition in (0, 1):
            wait_for_values(target, "flights", {"west": numbered_values("west", 10)}, partition)
        eventually(lambda: "the source has 3 partitions, the topic here 2" in target.log_tail(), within_s=20)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_partitions([NewPartitions("flights", 4)])["flights"].result(30)
        wait_for_values(target, "flights", {"west": numbered_values("west", 10)}, 2)
        assert read_watermarks(target.bootstrap, "flights", 3) == (0, 0)


def test_recreated_source_topic_continues_only_with_resync(west: BrokerProcess) -> None:
    with run_ottla_broker() as target:
        create_topic(west, "again")
        produce(west.bootstrap, "again", numbered_values("first", 20))
        append_topics(west, target, "west")
        wait_for_values(target, "again", {"first": numbered_values("first", 20)})
        admin = AdminClient({"bootstrap.servers": west.bootstrap})
        admin.delete_topics(["again"])["again"].result(30)
        eventually(lambda: "again" not in list_topics(west), within_s=30)
        create_topic(west, "again")
        produce(west.bootstrap, "again", numbered_values("second", 5))
        eventually(lambda: "deleted and created again" in target.log_tail(), within_s=30)
        wait_for_values(target, "again", {"first": numbered_values("first", 20)})
        append_topics(west, target, "west", on_source_truncation="Resync")
        wait_for_values(
            target, "again", {"first": numbered_values("first", 20), "second": numbered_values("second", 5)}
        )


def test_loop_of_two_clusters_is_rejected() -> None:
    """Two clusters would append each other's records endlessly, so the second mirror is
    rejected.
    """
    with run_ottla_broker() as a, run_ottla_broker() as b:
        create_topic(a, "flights")
        create_topic(b, "flights")
        produce(a.bootstrap, "flights", numbered_values("a", 10))
        produce(b.bootstrap, "flights", numbered_values("b", 10))
        append_topics(a, b, "a")
        wait_for_values(b, "flights", {"a": numbered_values("a", 10), "b": numbered_values("b", 10)})
        append_topics(b, a, "b")
        eventually(lambda: "has records from this cluster" in a.log_tail(), within_s=30)
        wait_for_high_watermark(a, "flights", 10)


def test_source_is_not_appended_again_after_a_failover(west: BrokerProcess) -> None:
    with run_ottla_broker() as target:
        create_topic(west, "flights")
        produce(west.bootstrap, "flights", numbered_values("west", 20))
        append_topics(west, target, "west")
        wait_for_values(target, "flights", {"west": numbered_values("west", 20)})
        append_topics(west, target, "west", role="FailedOver")
        status = mirror_status(target.bootstrap, "flights", 0, "west")
        assert (status["state"], status["end"], status["sourceEnd"], status["lag"]) == ("FailedOver", 20, 20, 0)
        produce(west.bootstrap, "flights", numbered_values("late", 20))
        append_topics(west, target, "west", role="Replicate")
        eventually(lambda: "appending it has ended permanently" in target.log_tail(), within_s=30)
        wait_for_values(target, "flights", {"west": numbered_values("west", 20)})
