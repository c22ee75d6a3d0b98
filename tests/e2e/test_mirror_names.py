"""Mirrored topics with a prefix, and mirrors of mirrors: no record returns to its own cluster."""

from collections.abc import Iterator

import pytest

from tests.brokers import BROKERS, BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import (
    commit_offsets,
    committed_offsets,
    create_topic,
    list_topics,
    mirror_status,
    mirror_topics,
    produce,
    read_log_bytes,
    read_records,
    wait_for_high_watermark,
)
from tests.waiting import eventually


@pytest.fixture(params=["kafka", "ottla"])
def west(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with BROKERS[request.param]() as broker:
        yield broker


def test_prefixed_topic_gets_the_records_and_group_offsets_of_its_source(west: BrokerProcess) -> None:
    with run_ottla_broker() as target:
        create_topic(west, "flights", 2)
        create_topic(target, "flights")
        produce(target.bootstrap, "flights", [b"of the target"] * 3)
        for partition in (0, 1):
            produce(west.bootstrap, "flights", [b"of the source"] * 100, partition=partition, enable_idempotence=True)
        mirror_topics(west, target, "west", prefix="west.", groups="readers")
        for partition in (0, 1):
            wait_for_high_watermark(target, "west.flights", 100, partition)
            expected = read_records(west.bootstrap, "flights", partition)
            assert read_records(target.bootstrap, "west.flights", partition) == expected
            assert read_log_bytes(target.log_dir, "west.flights", partition) == read_log_bytes(
                west.log_dir, "flights", partition
            )
        assert [record.value for record in read_records(target.bootstrap, "flights", 0)] == [b"of the target"] * 3
        commit_offsets(west.bootstrap, "readers", "flights", {0: 42, 1: 100})
        eventually(
            lambda: committed_offsets(target.bootstrap, "readers", "west.flights", 2) == {0: 42, 1: 100},
            within_s=30,
            message=lambda: target.log_tail(3000),
        )
        assert committed_offsets(target.bootstrap, "readers", "flights", 1) == {}
        assert mirror_status(target.bootstrap, "west.flights", 0)["state"] == "Replicating"


def test_ring_of_mirrors_copies_no_record_twice() -> None:
    """Three clusters in a ring, each of which mirrors all topics of the one before it."""
    with run_ottla_broker() as a, run_ottla_broker() as b, run_ottla_broker() as c:
        for name, broker in (("a", a), ("b", b), ("c", c)):
            create_topic(broker, f"of-{name}")
            produce(broker.bootstrap, f"of-{name}", [name.encode()] * 10)
        mirror_topics(a, b, "left", prefix="1.")
        mirror_topics(b, c, "left", prefix="2.")
        mirror_topics(c, a, "left", prefix="3.")
        wait_for_high_watermark(b, "1.of-a", 10)
        wait_for_high_watermark(b, "1.3.of-c", 10)
        wait_for_high_watermark(c, "2.of-b", 10)
        wait_for_high_watermark(c, "2.1.of-a", 10)
        wait_for_high_watermark(a, "3.of-c", 10)
        wait_for_high_watermark(a, "3.2.of-b", 10)
        for broker in (a, b, c):
            eventually(
                lambda broker=broker: "has records from this cluster" in broker.log_tail(),  # type: ignore[misc]
                within_s=30,
                message=lambda broker=broker: broker.log_tail(3000),  # type: ignore[misc]
            )
        assert list_topics(a) == {"of-a", "3.of-c", "3.2.of-b"}
        assert list_topics(b) == {"of-b", "1.of-a", "1.3.of-c"}
        assert list_topics(c) == {"of-c", "2.of-b", "2.1.of-a"}


def test_prefixed_topic_fails_back_to_a_topic_beside_its_source() -> None:
    with run_ottla_broker() as west, run_ottla_broker() as target:
        create_topic(west, "flights")
        produce(west.bootstrap, "flights", [b"of the source"] * 10)
        mirror_topics(west, target, "west", prefix="west.")
        wait_for_high_watermark(target, "west.flights", 10)
        mirror_topics(west, target, "west", role="FailedOver")
        eventually(lambda: mirror_status(target.bootstrap, "west.flights", 0).get("state") == "FailedOver", within_s=30)
        produce(target.bootstrap, "west.flights", [b"of the target"])
        mirror_topics(target, west, "back", on_divergence="Truncate")
        wait_for_high_watermark(west, "west.flights", 11)
        produce(west.bootstrap, "flights", [b"still open"])
        assert [record.value for record in read_records(west.bootstrap, "flights", 0)] == [b"of the source"] * 10 + [
            b"still open"
        ]
