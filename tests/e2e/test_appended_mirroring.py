"""Sources are appended to one topic: every committed record once, in its source's order, over
crashes.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from tests.brokers import BROKERS, BrokerProcess, run_ottla_broker
from tests.e2e.java_tools import run_java_tool
from tests.e2e.mirroring import produce, seen, set_mirror, status, watermarks
from tests.e2e.test_mirror_names import create, holds, topics
from tests.waiting import eventually

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def append(source: BrokerProcess, target: BrokerProcess, name: str, **settings: str) -> None:
    given = {
        "bootstrap.servers": source.bootstrap,
        "topics": "*",
        "offsets": "Appended",
        "metadata.max.age.ms": "500",
    }
    set_mirror(target.bootstrap, name, given | {key.replace("_", "."): value for key, value in settings.items()})


def values(broker: BrokerProcess, topic: str, partition: int = 0, isolation: str = "read_uncommitted") -> list[bytes]:
    return [one.value or b"" for one in seen(broker.bootstrap, topic, partition, isolation=isolation)]


def numbered(name: str, count: int, first: int = 0) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(first, first + count)]


def has(target: BrokerProcess, topic: str, wanted: dict[str, list[bytes]], partition: int = 0) -> None:
    """Waits until the topic has exactly these records, each source's in order, for both isolation
    levels.
    """

    def found() -> list[bytes]:
        return values(target, topic, partition)

    eventually(
        lambda: len(found()) >= sum(map(len, wanted.values())),
        within_s=40,
        message=lambda: f"{len(found())} records\n{target.log_tail(3000)}",
    )
    for isolation in ("read_uncommitted", "read_committed"):
        by_source: dict[str, list[bytes]] = {}
        for value in values(target, topic, partition, isolation):
            by_source.setdefault(value.split()[0].decode(), []).append(value)
        assert by_source == wanted


@pytest.fixture(params=["kafka", "ottla"])
def west(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with BROKERS[request.param](log_cleaner_backoff_ms=200) as broker:
        yield broker


def test_two_sources_and_a_producer_share_a_topic(west: BrokerProcess) -> None:
    with run_ottla_broker() as east, run_ottla_broker() as here:
        for broker in (west, east):
            create(broker, "flights", 2)
        for compression in COMPRESSIONS:
            produce(west.bootstrap, "flights", numbered("west", 60), compression_type=compression)
        produce(east.bootstrap, "flights", numbered("east", 300), enable_idempotence=True)
        append(west, here, "west")
        append(east, here, "east")
        wanted = {"west": numbered("west", 60) * 5, "east": numbered("east", 300)}
        has(here, "flights", wanted)
        produce(here.bootstrap, "flights", numbered("ours", 50), enable_idempotence=True)
        has(here, "flights", wanted | {"ours": numbered("ours", 50)})
        for first, way in ((300, BrokerProcess.restart), (400, kill_and_start)):
            way(here)
            produce(east.bootstrap, "flights", numbered("east", 100, first))
            wanted["east"] = numbered("east", first + 100)
            has(here, "flights", wanted | {"ours": numbered("ours", 50)})
        there = {one.value: one.timestamp for one in seen(east.bootstrap, "flights", 0)}
        copied = [one for one in seen(here.bootstrap, "flights", 0) if one.value.startswith(b"east")]  # type: ignore[union-attr]
        assert {one.value: one.timestamp for one in copied} == there


def kill_and_start(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def test_only_committed_transactions_of_kafka_are_appended() -> None:
    """Committed records are copied as soon as they are committed; aborted ones and markers are not."""
    with BROKERS["kafka"]() as west, run_ottla_broker() as here:
        create(west, "money")
        append(west, here, "west")
        producer = Producer({"bootstrap.servers": west.bootstrap, "transactional.id": "bank", "linger.ms": 0})
        producer.init_transactions(30)
        committed: list[bytes] = []
        for turn in range(12):
            producer.begin_transaction()
            of_turn = numbered("bank", 7, turn * 7)
            for value in of_turn:
                producer.produce("money", value, partition=0)
            if turn % 3:
                producer.commit_transaction(30)
                committed += of_turn
            else:
                assert producer.flush(30) == 0
                producer.abort_transaction(30)
        has(here, "money", {"bank": committed})
        producer.begin_transaction()
        producer.produce("money", b"bank open", partition=0)
        assert producer.flush(30) == 0
        here.restart()
        produce(here.bootstrap, "money", numbered("ours", 5))
        has(here, "money", {"bank": committed, "ours": numbered("ours", 5)})
        producer.commit_transaction(30)
        has(here, "money", {"bank": [*committed, b"bank open"], "ours": numbered("ours", 5)})
        here.stop()
        assert "isTransactional: true" not in dumped(here, "money")


def test_source_position_survives_deletion_of_the_records(west: BrokerProcess) -> None:
    """Retention and DeleteRecords delete all mirrored records, and none is appended a second time."""
    with run_ottla_broker(log_retention_check_interval_ms=300, log_segment_bytes=20_000) as here:
        create(west, "flights", 2)
        produce(west.bootstrap, "flights", numbered("west", 500))
        produce(west.bootstrap, "flights", numbered("west", 20), partition=1)
        append(west, here, "west")
        has(here, "flights", {"west": numbered("west", 500)})
        has(here, "flights", {"west": numbered("west", 20)}, partition=1)
        admin = AdminClient({"bootstrap.servers": here.bootstrap})
        where = TopicPartition("flights", 1, -1)
        admin.delete_records([where])[where].result(30)
        assert values(here, "flights", 1) == []
        here.restart()
        produce(west.bootstrap, "flights", numbered("west", 3, 20), partition=1)
        has(here, "flights", {"west": numbered("west", 3, 20)}, partition=1)
        admin = AdminClient({"bootstrap.servers": here.bootstrap})
        configure(admin, "flights", "retention.ms", "1")
        eventually(lambda: values(here, "flights") == [], within_s=30, message=lambda: here.log_tail(3000))
        configure(admin, "flights", "retention.ms", "-1")
        here.restart()
        produce(west.bootstrap, "flights", numbered("west", 3, 500))
        has(here, "flights", {"west": numbered("west", 3, 500)})


def dumped(broker: BrokerProcess, topic: str) -> str:
    """Output of Kafka's DumpLogSegments, which must accept the files."""
    logs = ",".join(str(path) for path in sorted((broker.log_dir / f"{topic}-0").glob("*.log")))
    said = run_java_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs)
    assert "isvalid: true" in said and "isvalid: false" not in said, said
    return said


def configure(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_missing_partitions_are_reported_and_mirrored_once_they_exist(west: BrokerProcess) -> None:
    with run_ottla_broker() as here:
        create(west, "flights", 3)
        create(here, "flights", 2)
        for partition in range(3):
            produce(west.bootstrap, "flights", numbered("west", 10), partition=partition)
        append(west, here, "west")
        for partition in (0, 1):
            has(here, "flights", {"west": numbered("west", 10)}, partition)
        eventually(lambda: "the source has 3 partitions, the topic here 2" in here.log_tail(), within_s=20)
        admin = AdminClient({"bootstrap.servers": here.bootstrap})
        admin.create_partitions([NewPartitions("flights", 4)])["flights"].result(30)
        has(here, "flights", {"west": numbered("west", 10)}, 2)
        assert watermarks(here.bootstrap, "flights", 3) == (0, 0)


def test_recreated_source_topic_continues_only_with_resync(west: BrokerProcess) -> None:
    with run_ottla_broker() as here:
        create(west, "again")
        produce(west.bootstrap, "again", numbered("first", 20))
        append(west, here, "west")
        has(here, "again", {"first": numbered("first", 20)})
        admin = AdminClient({"bootstrap.servers": west.bootstrap})
        admin.delete_topics(["again"])["again"].result(30)
        eventually(lambda: "again" not in topics(west), within_s=30)
        create(west, "again")
        produce(west.bootstrap, "again", numbered("second", 5))
        eventually(lambda: "deleted and created again" in here.log_tail(), within_s=30)
        has(here, "again", {"first": numbered("first", 20)})
        append(west, here, "west", on_source_truncation="Resync")
        has(here, "again", {"first": numbered("first", 20), "second": numbered("second", 5)})


def test_loop_of_two_clusters_is_rejected() -> None:
    """Two clusters would append each other's records for ever: the second mirror is rejected."""
    with run_ottla_broker() as a, run_ottla_broker() as b:
        create(a, "flights")
        create(b, "flights")
        produce(a.bootstrap, "flights", numbered("a", 10))
        produce(b.bootstrap, "flights", numbered("b", 10))
        append(a, b, "a")
        has(b, "flights", {"a": numbered("a", 10), "b": numbered("b", 10)})
        append(b, a, "b")
        eventually(lambda: "has records from this cluster" in a.log_tail(), within_s=30)
        holds(a, "flights", 10)


def test_failed_over_mirror_has_ended(west: BrokerProcess) -> None:
    with run_ottla_broker() as here:
        create(west, "flights")
        produce(west.bootstrap, "flights", numbered("west", 20))
        append(west, here, "west")
        has(here, "flights", {"west": numbered("west", 20)})
        append(west, here, "west", role="FailedOver")
        told = status(here.bootstrap, "flights", 0, "west")
        assert (told["state"], told["end"], told["sourceEnd"], told["lag"]) == ("FailedOver", 20, 20, 0)
        produce(west.bootstrap, "flights", numbered("late", 20))
        append(west, here, "west", role="Replicate")
        eventually(lambda: "appending it has ended for good" in here.log_tail(), within_s=30)
        has(here, "flights", {"west": numbered("west", 20)})
