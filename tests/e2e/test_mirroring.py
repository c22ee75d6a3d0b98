"""A mirror of Apache Kafka or of Ottla: the mirrored topic has the same log."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.brokers import BROKERS, BrokerProcess, run_apache_kafka, run_ottla_broker
from tests.e2e.mirroring import (
    Pair,
    commit_offsets,
    committed_offsets,
    delete_topics,
    mirror_status,
    produce,
    read_records,
    read_watermarks,
)
from tests.jars import KAFKA_4_2
from tests.slow_tests import slow
from tests.waiting import eventually

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


# The oldest version that users are likely to migrate from, and the newest.
OLDEST, NEWEST = "kafka-3.6.2", f"kafka-{KAFKA_4_2}"
SOURCES: dict[str, Callable[..., AbstractContextManager[BrokerProcess]]] = {
    OLDEST: partial(run_apache_kafka, version="3.6.2"),
    NEWEST: partial(run_apache_kafka, version=KAFKA_4_2),
    "ottla": run_ottla_broker,
}


@pytest.fixture(scope="module", params=[NEWEST, *slow([OLDEST, "ottla"])])
def source(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with SOURCES[request.param](log_cleaner_backoff_ms=200, log_retention_check_interval_ms=500) as it:
        yield it


@pytest.fixture
def pair(source: BrokerProcess) -> Iterator[Pair]:
    """A source without topics, and a new target."""
    delete_topics(source)
    with run_ottla_broker() as target:
        yield Pair(source, target)


def test_batches_of_all_kinds_are_identical(pair: Pair) -> None:
    pair.create_topic("kinds", 3, max_message_bytes="3000000")
    for compression in COMPRESSIONS:
        produce(pair.source.bootstrap, "kinds", (b"x" * n for n in range(300)), compression_type=compression)
    pair.mirror()
    pair.wait_until_caught_up("kinds")
    produce(pair.source.bootstrap, "kinds", (b"idempotent" * n for n in range(500)), enable_idempotence=True)
    produce(pair.source.bootstrap, "kinds", [b"m" * 1_000_000] * 4, partition=1, message_max_bytes=2_000_000)
    with_headers = Producer({"bootstrap.servers": pair.source.bootstrap})
    with_headers.produce("kinds", b"v", partition=0, headers=[("a", b"1"), ("a", None), ("é", b"")], timestamp=1234567)
    with_headers.produce("kinds", None, key=b"only a key", partition=0)
    assert with_headers.flush(30) == 0
    for partition in range(3):  # the last one is empty
        pair.assert_same_records("kinds", partition)
        pair.assert_same_bytes("kinds", partition)
    with pytest.raises(AssertionError, match=r"INVALID_TOPIC|Invalid topic"):
        produce(pair.target.bootstrap, "kinds", [b"not here"])
    pair.target.restart()
    produce(pair.source.bootstrap, "kinds", [b"after a restart"] * 10)
    pair.assert_same_records("kinds")
    pair.target.kill()
    produce(pair.source.bootstrap, "kinds", [b"while the target was down"] * 10)
    pair.target.start()
    produce(pair.source.bootstrap, "kinds", [b"after a crash"] * 10)
    pair.assert_same_records("kinds")
    pair.assert_same_bytes("kinds")


@pytest.mark.parametrize("version", [*slow([OLDEST]), NEWEST])
def test_transactions_of_kafka_are_identical(version: str) -> None:
    with SOURCES[version]() as source, run_ottla_broker() as target:
        pair = Pair(source, target)
        pair.create_topic("money")
        pair.mirror()
        producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "bank", "linger.ms": 0})
        producer.init_transactions(30)
        for turn in range(12):
            producer.begin_transaction()
            for number in range(7):
                producer.produce("money", f"{turn}-{number}", partition=0)
            if turn % 3:
                producer.commit_transaction(30)
            else:
                assert producer.flush(30) == 0
                producer.abort_transaction(30)
        produce(source.bootstrap, "money", [b"not transactional"] * 3)
        producer.begin_transaction()
        producer.produce("money", b"open", partition=0)
        assert producer.flush(30) == 0
        pair.assert_same_records("money")
        assert read_records(target.bootstrap, "money", 0) != read_records(
            target.bootstrap, "money", 0, isolation="read_committed"
        )
        assert len(read_records(target.bootstrap, "money", 0, isolation="read_committed")) == 8 * 7 + 3
        producer.commit_transaction(30)
        pair.assert_same_records("money")
        target.restart()
        pair.assert_same_records("money")
        pair.assert_same_bytes("money")


def test_log_start_follows_the_source(pair: Pair) -> None:
    pair.create_topic("heads", 2)
    admin = AdminClient({"bootstrap.servers": pair.source.bootstrap})

    def delete_below(partition: int, offset: int) -> None:
        where = TopicPartition("heads", partition, offset)
        admin.delete_records([where])[where].result(30)

    for partition in (0, 1):
        for _ in range(10):  # batches of ten, so that a start may lie inside of one
            produce(pair.source.bootstrap, "heads", [b"r" * 500] * 10, partition=partition)
    delete_below(0, 37)
    pair.mirror()
    pair.assert_same_records("heads", 0)
    assert read_watermarks(pair.target.bootstrap, "heads", 0) == (37, 100)
    pair.assert_same_records("heads", 1)
    delete_below(0, 61)
    delete_below(1, 100)
    for partition in (0, 1):
        pair.assert_same_records("heads", partition)
    # Records that were deleted before they were copied leave a gap, which only the log start shows.
    pair.mirror(role="Paused")
    produce(pair.source.bootstrap, "heads", [b"never copied"] * 10, partition=1)
    delete_below(1, 110)
    produce(pair.source.bootstrap, "heads", [b"copied"] * 5, partition=1)
    assert read_watermarks(pair.target.bootstrap, "heads", 1) == (100, 100)
    pair.mirror(role="Replicate")
    pair.assert_same_records("heads", 1)
    assert read_watermarks(pair.target.bootstrap, "heads", 1) == (110, 115)


def test_offset_gaps_of_compaction_are_kept(pair: Pair) -> None:
    pair.create_topic(
        "table",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="500",
        delete_retention_ms="60000",
    )
    for _ in range(12):
        produce(pair.source.bootstrap, "table", [b"v" * 400] * 50)

    def is_compacted() -> bool:
        produce(pair.source.bootstrap, "table", [b"newest"])
        return len(read_records(pair.source.bootstrap, "table", 0)) < 300

    eventually(is_compacted, within_s=90, message="a source that has compacted the log")
    pair.mirror()
    pair.wait_until_caught_up("table")
    newest = {record.key: record.value for record in read_records(pair.source.bootstrap, "table", 0)}
    assert {record.key: record.value for record in read_records(pair.target.bootstrap, "table", 0)} == newest
    offsets = {record.offset for record in read_records(pair.target.bootstrap, "table", 0)}
    assert len(offsets) < max(offsets) - 100, "the log has gaps"
    pair.target.kill()
    pair.target.start()
    produce(pair.source.bootstrap, "table", [b"after the gaps"] * 5)
    pair.wait_until_caught_up("table")
    newest = {record.key: record.value for record in read_records(pair.source.bootstrap, "table", 0)}
    assert {record.key: record.value for record in read_records(pair.target.bootstrap, "table", 0)} == newest


def test_recreated_topic_is_never_mixed_in(pair: Pair) -> None:
    admin = AdminClient({"bootstrap.servers": pair.source.bootstrap})
    pair.create_topic("again")
    produce(pair.source.bootstrap, "again", [b"first life"] * 20)
    pair.mirror()
    pair.assert_same_records("again")
    before = read_records(pair.target.bootstrap, "again", 0)
    admin.delete_topics(["again"])["again"].result(30)
    eventually(lambda: "again" not in admin.list_topics(timeout=10).topics, within_s=30)
    pair.create_topic("again")
    produce(pair.source.bootstrap, "again", [b"second life"] * 50)
    eventually(lambda: "deleted and created again" in pair.target.log_tail(), within_s=30)
    assert read_records(pair.target.bootstrap, "again", 0) == before
    pair.target.restart()
    pair.create_topic("another")
    produce(pair.source.bootstrap, "another", [b"v"])
    pair.assert_same_records("another")
    assert read_records(pair.target.bootstrap, "again", 0) == before, "mirroring stays stopped after a restart"
    pair.mirror(on_source_truncation="Resync")
    pair.assert_same_records("again")
    assert len(read_records(pair.target.bootstrap, "again", 0)) == 50


@pytest.mark.parametrize("records_again", [5, 50], ids=["shorter", "longer"])
def test_source_that_lost_its_log_is_never_mixed_in(pair: Pair, records_again: int) -> None:
    """The source's disk was replaced: the topic keeps its id and has other records at mirrored
    offsets.
    """
    pair.create_topic("lost")
    produce(pair.source.bootstrap, "lost", [b"first life"] * 20)
    pair.mirror()
    pair.assert_same_records("lost")
    before = read_records(pair.target.bootstrap, "lost", 0)
    pair.mirror(role="Paused")
    pair.source.stop()
    for path in (pair.source.log_dir / "lost-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for checkpoint in (
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ):
        path = pair.source.log_dir / checkpoint
        lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith("lost ")]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    pair.source.start()
    produce(pair.source.bootstrap, "lost", [b"second life"] * records_again)
    pair.mirror(role="Replicate")
    eventually(lambda: "the source has lost mirrored records" in pair.target.log_tail(), within_s=30)
    assert read_records(pair.target.bootstrap, "lost", 0) == before
    pair.mirror(on_source_truncation="Resync")
    pair.assert_same_records("lost")
    assert len(read_records(pair.target.bootstrap, "lost", 0)) == records_again


def test_failover_while_records_and_transactions_are_written() -> None:
    """Open transactions are aborted, producers continue at a known offset, and mirroring has
    ended.
    """
    with BROKERS["kafka"]() as source, run_ottla_broker() as target:
        pair = Pair(source, target)
        pair.create_topic("money", 2)
        pair.mirror()
        producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "bank", "linger.ms": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("money", b"committed", partition=0)
        producer.commit_transaction(30)
        produce(source.bootstrap, "money", [b"plain"] * 100, partition=1, enable_idempotence=True)
        producer.begin_transaction()
        producer.produce("money", b"open at the failover", partition=0)
        assert producer.flush(30) == 0
        for partition in (0, 1):
            pair.wait_until_caught_up("money", partition)
        pair.mirror(role="FailedOver")
        produce(source.bootstrap, "money", [b"too late"] * 5, partition=1)
        producer.commit_transaction(30)
        for partition in (0, 1):
            eventually(partial(accepts_record, target.bootstrap, "money", partition), within_s=20)
        states = {partition: mirror_status(target.bootstrap, "money", partition) for partition in (0, 1)}
        assert {one["state"] for one in states.values()} == {"FailedOver"}
        assert (states[1]["end"], states[1]["sourceEnd"], states[1]["lag"]) == (100, 100, 0)
        # A producer of the source continues here with a producer id of this cluster.
        produce(target.bootstrap, "money", [b"ours"] * 50, partition=1, enable_idempotence=True)
        assert [record.value for record in read_records(target.bootstrap, "money", 1)] == [b"plain"] * 100 + [
            b"probe"
        ] + [b"ours"] * 50
        committed = [record.value for record in read_records(target.bootstrap, "money", 0, isolation="read_committed")]
        assert committed == [b"committed", b"probe"]
        assert b"open at the failover" in [record.value for record in read_records(target.bootstrap, "money", 0)]
        target.restart()
        pair.mirror(role="Replicate")
        produce(source.bootstrap, "money", [b"much too late"] * 5, partition=1)
        pair.create_topic("more")
        pair.assert_same_records("more")
        assert [record.value for record in read_records(target.bootstrap, "money", 1)] == [b"plain"] * 100 + [
            b"probe"
        ] + [b"ours"] * 50


def test_throttle_bounds_the_rate_and_lag_is_reported() -> None:
    """4 MB at 1 MB per second: 1 MB is the burst, and the last fetch of up to 1 MB is not
    delayed.
    """
    with run_ottla_broker() as source, run_ottla_broker() as target:
        pair = Pair(source, target)
        pair.create_topic("slow")
        produce(source.bootstrap, "slow", [b"x" * 10_000] * 400)
        started = time.monotonic()
        pair.mirror(throttled_rate="1000000")
        status = eventually(
            lambda: status_while_behind(target.bootstrap, "slow"), within_s=20, message="a mirror with lag"
        )
        assert 0 < status["lagBytes"] <= 4_100_000
        assert status["lagBytes"] == pytest.approx(status["lag"] * 10_000, rel=0.05)
        assert 0 <= status["silentSeconds"] < 3
        pair.wait_until_caught_up("slow")
        throttled_s = time.monotonic() - started
        assert throttled_s > 1.9
        pair.assert_same_records("slow")
        pair.mirror(throttled_rate="100000000")
        started = time.monotonic()
        produce(source.bootstrap, "slow", [b"x" * 10_000] * 400)
        pair.wait_until_caught_up("slow")
        assert time.monotonic() - started < throttled_s


def status_while_behind(bootstrap: str, topic: str) -> dict[str, Any]:
    """The leader's status while it has only some of the source's records; otherwise empty."""
    status = mirror_status(bootstrap, topic, 0)
    return status if status.get("lag", 0) > 0 and status["end"] > 0 else {}


def accepts_record(bootstrap: str, topic: str, partition: int) -> bool:
    """Produces one record. False if the topic is rejected because it is mirrored."""
    try:
        produce(bootstrap, topic, [b"probe"], partition=partition)
    except AssertionError as reason:
        assert "INVALID_TOPIC" in str(reason) or "Invalid topic" in str(reason), reason
        return False
    return True


def test_group_continues_at_the_target_where_it_stopped_at_the_source(pair: Pair) -> None:
    pair.create_topic("work", 2)
    for partition in (0, 1):
        produce(pair.source.bootstrap, "work", [f"{n}".encode() for n in range(100)], partition=partition)
    pair.mirror(groups="workers,!other")
    for partition in (0, 1):
        pair.wait_until_caught_up("work", partition)
    commit_offsets(pair.source.bootstrap, "workers", "work", {0: 30, 1: 100})
    commit_offsets(pair.source.bootstrap, "other", "work", {0: 5})

    def offsets_at_target() -> dict[int, int]:
        return committed_offsets(pair.target.bootstrap, "workers", "work", 2)

    eventually(
        lambda: offsets_at_target() == {0: 30, 1: 100},
        within_s=30,
        message=lambda: f"{offsets_at_target()}\n{pair.target.log_tail(3000)}",
    )
    assert committed_offsets(pair.target.bootstrap, "other", "work", 2) == {}
    commit_offsets(pair.target.bootstrap, "workers", "work", {0: 60})
    commit_offsets(pair.source.bootstrap, "workers", "work", {0: 40, 1: 100})
    produce(pair.source.bootstrap, "work", [b"more"] * 10, partition=1)
    commit_offsets(pair.source.bootstrap, "workers", "work", {1: 110})
    eventually(
        lambda: offsets_at_target() == {0: 60, 1: 110}, within_s=30, message="committed offsets that only moved forward"
    )
