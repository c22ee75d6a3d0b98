"""Failback: the old source mirrors its former mirror. Its diverged records are saved, and truncated
only with consent.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla_broker.wire.records import iter_records
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.java_tools import run_java_tool
from tests.e2e.mirroring import log_bytes, produce, seen, set_mirror, status, watermarks
from tests.waiting import eventually

TOPIC = "orders"


@dataclass
class Sites:
    """`a` is the first source; `b` mirrors it by mirror `west`. Brokers or clusters."""

    a: BrokerProcess | ProcessCluster
    b: BrokerProcess | ProcessCluster

    def create(self, partitions: int = 2, factor: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.a.bootstrap})
        admin.create_topics([NewTopic(TOPIC, partitions, factor)])[TOPIC].result(30)

    def west(self, **settings: str) -> None:
        """At b, from a."""
        _set(self.b, "west", {"bootstrap.servers": self.a.bootstrap}, settings)

    def back(self, **settings: str) -> None:
        """At a, from b."""
        _set(self.a, "back", {"bootstrap.servers": self.b.bootstrap}, settings)

    def same_ends(self, partition: int = 0) -> None:
        eventually(
            lambda: watermarks(self.a.bootstrap, TOPIC, partition) == watermarks(self.b.bootstrap, TOPIC, partition),
            within_s=60,
            message=lambda: (
                f"{TOPIC}-{partition}: {watermarks(self.a.bootstrap, TOPIC, partition)} at a, {status(self.a.bootstrap, TOPIC, partition)}; "
                f"{watermarks(self.b.bootstrap, TOPIC, partition)} at b, {status(self.b.bootstrap, TOPIC, partition)}"
            ),
        )

    def assert_same(self, partition: int = 0) -> None:
        self.same_ends(partition)
        for isolation in ("read_uncommitted", "read_committed"):
            here = seen(self.a.bootstrap, TOPIC, partition, isolation=isolation)
            assert here == seen(self.b.bootstrap, TOPIC, partition, isolation=isolation)

    def state(self, at: BrokerProcess | ProcessCluster, partition: int = 0) -> str:
        return str(status(at.bootstrap, TOPIC, partition).get("state"))

    def becomes(self, at: BrokerProcess | ProcessCluster, state: str, partition: int = 0) -> dict[str, object]:
        eventually(
            lambda: self.state(at, partition) == state,
            within_s=60,
            message=lambda: f"{state}; it is {status(at.bootstrap, TOPIC, partition)}",
        )
        return status(at.bootstrap, TOPIC, partition)


def _set(at: BrokerProcess | ProcessCluster, name: str, base: dict[str, str], settings: dict[str, str]) -> None:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    set_mirror(at.bootstrap, name, base | {"topics": TOPIC, "groups": "*", "metadata.max.age.ms": "500"} | given)


@pytest.fixture
def sites() -> Iterator[Sites]:
    with run_ottla_broker() as a, run_ottla_broker() as b:
        yield Sites(a, b)


def values(bootstrap: str, partition: int = 0) -> list[bytes | None]:
    return [one.value for one in seen(bootstrap, TOPIC, partition)]


def saved(log_dir: Path, partition: int = 0) -> list[Path]:
    """Complete files: a broker that was killed while it saved leaves an unfinished folder."""
    return sorted((log_dir / f"{TOPIC}-{partition}" / "diverged").glob("*-epoch-*[0-9]/*.log"))


def commit(bootstrap: str, group: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(TOPIC, partition, at) for partition, at in offsets.items()]
        consumer.commit(offsets=wanted, asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(TOPIC, partition) for partition in (0, 1)], timeout=20)
        return {one.partition: one.offset for one in found if one.offset >= 0}
    finally:
        consumer.close()


def test_failover_failback_and_back_again(sites: Sites) -> None:
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess)
    sites.create()
    for partition, count in ((0, 100), (1, 40)):
        produce(
            a.bootstrap, TOPIC, [f"a {n}".encode() for n in range(count)], partition=partition, enable_idempotence=True
        )
    sites.west()
    for partition in (0, 1):
        sites.same_ends(partition)
    sites.west(role="Paused")
    produce(a.bootstrap, TOPIC, [f"never copied {n}".encode() for n in range(37)], compression_type="zstd")
    sites.west(role="FailedOver")
    for partition in (0, 1):
        sites.becomes(b, "FailedOver", partition)
        produce(b.bootstrap, TOPIC, [f"b {n}".encode() for n in range(50)], partition=partition)
    commit(a.bootstrap, "workers", {0: 130, 1: 40})  # they have read what b never had
    commit(b.bootstrap, "workers", {0: 110, 1: 45})
    before = seen(a.bootstrap, TOPIC, 0)

    # a comes back, and nobody has said that anything may be cut off.
    sites.back()
    told = sites.becomes(a, "Diverged")
    assert told["diverging"] == 37
    assert "37 records, from offset 100 to 136, are not at the source" in str(told["why"])
    sites.assert_same(1)
    for partition in (0, 1):
        with pytest.raises(AssertionError, match=r"INVALID_TOPIC|Invalid topic"):
            produce(a.bootstrap, TOPIC, [b"not here"], partition=partition)
    a.kill()
    a.start()
    sites.becomes(a, "Diverged")
    assert seen(a.bootstrap, TOPIC, 0) == before, "nothing is cut without consent"
    assert not saved(a.log_dir)

    sites.back(on_divergence="Truncate")
    sites.assert_same()
    for partition in (0, 1):
        assert log_bytes(a.log_dir, TOPIC, partition) == log_bytes(b.log_dir, TOPIC, partition)  # type: ignore[union-attr]
    (tail,) = saved(a.log_dir)
    assert tail.name == f"{100:020d}.log"
    assert decoded(tail) == [f"never copied {n}".encode() for n in range(37)]
    said = run_java_tool("kafka.tools.DumpLogSegments", "--files", str(tail), "--print-data-log")
    assert said.count("never copied") == 37
    eventually(
        lambda: committed(a.bootstrap, "workers") == {0: 110, 1: 45},
        within_s=30,
        message="groups go on where they are at b",
    )
    produce(b.bootstrap, TOPIC, [b"more of b"] * 20)
    sites.assert_same()
    a.restart()
    produce(b.bootstrap, TOPIC, [b"even more of b"] * 20)
    sites.assert_same()

    # And home: a is opened, b follows it again.
    sites.back(role="FailedOver", on_divergence="Truncate")
    sites.becomes(a, "FailedOver")
    produce(a.bootstrap, TOPIC, [b"home"] * 30, enable_idempotence=True)
    sites.west(role="Replicate")
    sites.becomes(b, "Replicating")
    sites.assert_same()
    assert values(b.bootstrap)[-30:] == [b"home"] * 30
    assert not saved(b.log_dir), "b had nothing of its own"  # type: ignore[union-attr]
    with pytest.raises(AssertionError, match=r"INVALID_TOPIC|Invalid topic"):
        produce(b.bootstrap, TOPIC, [b"not here"])

    # A drill after that is taken back to where it began, not to where a went home.
    sites.west(role="FailedOver")
    sites.becomes(b, "FailedOver")
    produce(b.bootstrap, TOPIC, [b"in the drill"] * 3)
    sites.west(role="Replicate")
    assert sites.becomes(b, "Diverged")["diverging"] == 3
    sites.west(on_divergence="Truncate")
    sites.becomes(b, "Replicating")
    sites.assert_same()
    (tail,) = saved(b.log_dir)  # type: ignore[union-attr]
    assert decoded(tail) == [b"in the drill"] * 3


def decoded(path: Path) -> list[bytes | None]:
    return [record.value for _, record in iter_records(path.read_bytes())]


def test_topic_is_not_adopted_without_proof(sites: Sites) -> None:
    """Topics of one name that never mirrored each other, and a mirrored topic that has not failed
    over.
    """
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess)
    sites.create()
    sites.west()
    sites.same_ends()
    produce(a.bootstrap, TOPIC, [b"a"] * 10)
    sites.back(on_divergence="Truncate")
    eventually(lambda: "mirrors this one, by mirror 'west', and has not failed over" in a.log_tail(), within_s=20)
    produce(a.bootstrap, TOPIC, [b"still open"] * 10)
    sites.assert_same()
    sites.back(topics="other", on_divergence="Truncate")
    for site in (a, b):
        admin = AdminClient({"bootstrap.servers": site.bootstrap})
        admin.create_topics([NewTopic("other", 1, 1)])["other"].result(30)
        produce(site.bootstrap, "other", [site.bootstrap.encode()] * 5)
    eventually(lambda: "a topic of that name exists and is not mirrored" in a.log_tail(), within_s=20)
    assert [one.value for one in seen(a.bootstrap, "other", 0)] == [a.bootstrap.encode()] * 5


def test_old_source_truncates_while_its_brokers_are_killed() -> None:
    """Three replicas with diverged records. From the consent on, the leader is killed again and
    again. In the end all have the source's log, and the diverged records are saved.
    """
    with run_cluster("ottla", 3) as a, run_ottla_broker() as b:
        sites = Sites(a, b)
        sites.create(1, 3)
        produce(a.bootstrap, TOPIC, [f"a {n}".encode() for n in range(2000)])
        sites.west()
        sites.same_ends()
        sites.west(role="Paused")
        produce(a.bootstrap, TOPIC, [f"never copied {n}".encode() for n in range(500)], linger_ms=1)
        sites.west(role="FailedOver")
        sites.becomes(b, "FailedOver")
        produce(b.bootstrap, TOPIC, [f"b {n}".encode() for n in range(1000)])
        sites.back()
        sites.becomes(a, "Diverged")
        sites.back(on_divergence="Truncate")
        for turn in range(4):
            leader = eventually(lambda: a.partition_state(TOPIC, 0).leader, within_s=30)
            victim = a.brokers[leader]
            time.sleep(0.15 * turn)  # at another moment each time: not a wait for anything
            victim.kill()
            produce(b.bootstrap, TOPIC, [b"while one is away"] * 100)
            victim.start()
            eventually(lambda: a.is_healthy(), within_s=60, message=lambda: str(a.health_problems()))
        sites.assert_same()
        eventually(lambda: a.is_healthy(), within_s=60, message=lambda: str(a.health_problems()))
        there = log_bytes(b.log_dir, TOPIC, 0)
        for broker in a.brokers.values():
            eventually(lambda broker=broker: log_bytes(broker.log_dir, TOPIC, 0) == there, within_s=30)  # type: ignore[misc]
        tails = [path for broker in a.brokers.values() for path in saved(broker.log_dir)]
        assert tails
        for path in tails:
            assert decoded(path) == [f"never copied {n}".encode() for n in range(500)]
