"""Mirrors between clusters of three: leaders change, brokers die, on either side, and the copy is the same log all the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clusters import Cluster, cluster_of
from tests.e2e.mirroring import log_bytes, seen, set_mirror, status, watermarks
from tests.e2e.stream import nobody_is, stream
from tests.waiting import eventually

TOPIC = "orders"
PARTITIONS = 3


@contextmanager
def producing(source: Cluster) -> Iterator[list[int]]:
    """Numbered records into every partition for as long as this lasts; gives how many were acknowledged so far."""
    acknowledged = [0]

    def one_more(_: Message) -> None:
        acknowledged[0] += 1

    with stream(source.bootstrap, TOPIC, PARTITIONS, lambda number: f"{number:0100}", one_more, nobody_is):
        yield acknowledged


def more(acknowledged: list[int], records: int = 1500) -> None:
    wanted = acknowledged[0] + records
    eventually(lambda: acknowledged[0] >= wanted, within_s=60, what="the load goes on")


def leaders(cluster: Cluster) -> set[int]:
    return {cluster.partition(TOPIC, partition).leader for partition in range(PARTITIONS)}


@pytest.fixture(params=["kafka", "ottla"])
def source(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster_of(request.param, 3 if request.param == "ottla" else 1, **ALONE[request.param]) as cluster:
        yield cluster


ALONE: dict[str, dict[str, Any]] = {
    "ottla": {},
    # Three JVMs are too many for a small machine: what a source of Kafka's does when it fails over is in `test_mirroring`.
    "kafka": dict.fromkeys(
        (
            "default_replication_factor",
            "min_insync_replicas",
            "offsets_topic_replication_factor",
            "transaction_state_log_replication_factor",
            "transaction_state_log_min_isr",
        ),
        "1",
    ),
}


def test_brokers_of_either_side_die_while_records_come(source: Cluster) -> None:
    with cluster_of("ottla", 3) as target:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        factor = len(source.brokers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, factor)])[TOPIC].result(30)
        set_mirror(
            target.bootstrap,
            "west",
            {"bootstrap.servers": source.bootstrap, "topics": "*", "metadata.max.age.ms": "500"},
        )
        with producing(source) as acknowledged:
            eventually(lambda: watermarks(target.bootstrap, TOPIC, 0)[1] > 100, within_s=30, what="copying has begun")
            for victim in target.brokers:
                broker = target.brokers[victim]
                if victim == 2:
                    broker.stop()  # hands over what it leads
                else:
                    broker.kill()
                more(acknowledged)
                broker.start()
                eventually(lambda: target.healthy(), within_s=60, what=lambda: str(target.troubles()))
                more(acknowledged)
            if factor > 1:
                for broker in source.brokers.values():
                    broker.kill()
                    more(acknowledged)
                    broker.start()
                    eventually(lambda: source.healthy(), within_s=60, what=lambda: str(source.troubles()))
        ends = {partition: watermarks(source.bootstrap, TOPIC, partition) for partition in range(PARTITIONS)}
        for partition, end in ends.items():
            eventually(
                lambda partition=partition, end=end: watermarks(target.bootstrap, TOPIC, partition) == end,  # type: ignore[misc]
                within_s=60,
                what=lambda partition=partition, end=end: (
                    f"{partition}: {watermarks(target.bootstrap, TOPIC, partition)} is {end}"
                ),  # type: ignore[misc]
            )
            assert seen(target.bootstrap, TOPIC, partition) == seen(source.bootstrap, TOPIC, partition)
        eventually(lambda: target.healthy(), within_s=60, what=lambda: str(target.troubles()))
        assert sum(end for _, end in ends.values()) == acknowledged[0]
        for partition in range(PARTITIONS):
            there = log_bytes(source.brokers[1].log_dir, TOPIC, partition)
            for broker in target.brokers.values():
                assert log_bytes(broker.log_dir, TOPIC, partition) == there


@pytest.mark.parametrize("source", ["ottla"], indirect=True)
def test_a_broker_dies_while_its_cluster_fails_over(source: Cluster) -> None:
    """Below the offset that is reported the copy is the source's log, above it are the records that were acknowledged here, each once."""
    with cluster_of("ottla", 3) as target:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        set_mirror(target.bootstrap, "west", {"bootstrap.servers": source.bootstrap, "topics": TOPIC})
        with producing(source) as acknowledged:
            more(acknowledged)
            eventually(lambda: watermarks(target.bootstrap, TOPIC, 0)[1] > 100, within_s=30, what="copying has begun")
            victim = target.partition(TOPIC, 0).leader
            set_mirror(target.bootstrap, "west", {"role": "FailedOver"})
            target.brokers[victim].kill()
            with writing(target) as written:
                eventually(lambda: len(written) > 500, within_s=60, what="the copy takes records")
                target.brokers[victim].start()
        for partition in range(PARTITIONS):
            told = status(target.bootstrap, TOPIC, partition)
            assert told["state"] == "FailedOver"
            records = seen(target.bootstrap, TOPIC, partition)
            assert records[: told["end"]] == seen(source.bootstrap, TOPIC, partition)[: told["end"]]
            assert told["end"] > 0
            ours = [one.value for one in records[told["end"] :]]
            assert len(set(ours)) == len(ours)
            assert {value for value, at in written if at == partition} <= set(ours)


@contextmanager
def writing(target: Cluster) -> Iterator[list[tuple[bytes, int]]]:
    """Records of its own into every partition of a copy, from the moment on when it takes them; gives those that were acknowledged."""
    acknowledged: list[tuple[bytes, int]] = []

    def one_more(message: Message) -> None:
        acknowledged.append((message.value() or b"", message.partition() or 0))

    with stream(target.bootstrap, TOPIC, PARTITIONS, lambda number: f"ours {number}", one_more, lambda why: None):
        yield acknowledged
