"""Mirrored topics with a prefix, and mirrors of mirrors: no record returns to its own cluster."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BROKERS, BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import log_bytes, produce, seen, set_mirror, status, watermarks
from tests.e2e.test_mirroring import commit, committed
from tests.waiting import eventually


def mirror(source: BrokerProcess, target: BrokerProcess, name: str, **settings: str) -> None:
    given = {"bootstrap.servers": source.bootstrap, "topics": "*", "metadata.max.age.ms": "500"}
    set_mirror(target.bootstrap, name, given | {key.replace("_", "."): value for key, value in settings.items()})


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # lives until it has answered
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def topics(broker: BrokerProcess) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.list_topics(timeout=20).topics
    return {name for name in found if not name.startswith("__")}


def holds(broker: BrokerProcess, topic: str, records: int, partition: int = 0) -> None:
    eventually(
        lambda: watermarks(broker.bootstrap, topic, partition)[1] == records,
        within_s=30,
        message=lambda: f"{topic}: {watermarks(broker.bootstrap, topic, partition)}\n{broker.log_tail(3000)}",
    )


@pytest.fixture(params=["kafka", "ottla"])
def west(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with BROKERS[request.param]() as broker:
        yield broker


def test_prefixed_topic_and_its_group_offsets(west: BrokerProcess) -> None:
    with run_ottla_broker() as here:
        create(west, "flights", 2)
        create(here, "flights")
        produce(here.bootstrap, "flights", [b"here"] * 3)
        for partition in (0, 1):
            produce(west.bootstrap, "flights", [b"there"] * 100, partition=partition, enable_idempotence=True)
        mirror(west, here, "west", prefix="west.", groups="readers")
        for partition in (0, 1):
            holds(here, "west.flights", 100, partition)
            there = seen(west.bootstrap, "flights", partition)
            assert seen(here.bootstrap, "west.flights", partition) == there
            assert log_bytes(here.log_dir, "west.flights", partition) == log_bytes(west.log_dir, "flights", partition)
        assert [one.value for one in seen(here.bootstrap, "flights", 0)] == [b"here"] * 3
        commit(west.bootstrap, "readers", "flights", {0: 42, 1: 100})
        eventually(
            lambda: committed(here.bootstrap, "readers", "west.flights", 2) == {0: 42, 1: 100},
            within_s=30,
            message=lambda: here.log_tail(3000),
        )
        assert committed(here.bootstrap, "readers", "flights", 1) == {}
        assert status(here.bootstrap, "west.flights", 0)["state"] == "Replicating"


def test_ring_of_mirrors_copies_no_record_twice() -> None:
    """Three clusters in a ring, each of which mirrors all topics of the one before it."""
    with run_ottla_broker() as a, run_ottla_broker() as b, run_ottla_broker() as c:
        for name, broker in (("a", a), ("b", b), ("c", c)):
            create(broker, f"of-{name}")
            produce(broker.bootstrap, f"of-{name}", [name.encode()] * 10)
        mirror(a, b, "left", prefix="1.")
        mirror(b, c, "left", prefix="2.")
        mirror(c, a, "left", prefix="3.")
        holds(b, "1.of-a", 10)
        holds(b, "1.3.of-c", 10)
        holds(c, "2.of-b", 10)
        holds(c, "2.1.of-a", 10)
        holds(a, "3.of-c", 10)
        holds(a, "3.2.of-b", 10)
        for broker in (a, b, c):
            eventually(
                lambda broker=broker: "has records from this cluster" in broker.log_tail(),  # type: ignore[misc]
                within_s=30,
                message=lambda broker=broker: broker.log_tail(3000),  # type: ignore[misc]
            )
        assert topics(a) == {"of-a", "3.of-c", "3.2.of-b"}
        assert topics(b) == {"of-b", "1.of-a", "1.3.of-c"}
        assert topics(c) == {"of-c", "2.of-b", "2.1.of-a"}


def test_prefixed_topic_fails_back_as_a_topic_of_its_own() -> None:
    with run_ottla_broker() as west, run_ottla_broker() as here:
        create(west, "flights")
        produce(west.bootstrap, "flights", [b"there"] * 10)
        mirror(west, here, "west", prefix="west.")
        holds(here, "west.flights", 10)
        mirror(west, here, "west", role="FailedOver")
        eventually(lambda: status(here.bootstrap, "west.flights", 0).get("state") == "FailedOver", within_s=30)
        produce(here.bootstrap, "west.flights", [b"here"])
        mirror(here, west, "back", on_divergence="Truncate")
        holds(west, "west.flights", 11)
        produce(west.bootstrap, "flights", [b"still open"])
        assert [one.value for one in seen(west.bootstrap, "flights", 0)] == [b"there"] * 10 + [b"still open"]
