"""Mirrors between clusters of three: leaders change and brokers are killed on both sides, and the
logs stay identical.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.background_producer import fail_on_rejected_record, produce_in_background
from tests.e2e.mirroring import log_bytes, seen, set_mirror, status, watermarks
from tests.waiting import eventually

TOPIC = "orders"
PARTITIONS = 3


@contextmanager
def producing(source: ProcessCluster) -> Iterator[list[int]]:
    """Produces numbered records to all partitions; yields the acknowledged records per partition."""
    acknowledged = [0]

    def one_more(_: Message) -> None:
        acknowledged[0] += 1

    with produce_in_background(
        source.bootstrap, TOPIC, PARTITIONS, lambda number: f"{number:0100}", one_more, fail_on_rejected_record
    ):
        yield acknowledged


def more(acknowledged: list[int], records: int = 1500) -> None:
    wanted = acknowledged[0] + records
    eventually(lambda: acknowledged[0] >= wanted, within_s=60, message="the load goes on")


def leaders(cluster: ProcessCluster) -> set[int]:
    return {cluster.partition_state(TOPIC, partition).leader for partition in range(PARTITIONS)}


@pytest.fixture(params=["kafka", "ottla"])
def source(request: pytest.FixtureRequest) -> Iterator[ProcessCluster]:
    with run_cluster(request.param, 3 if request.param == "ottla" else 1, **ALONE[request.param]) as cluster:
        yield cluster


ALONE: dict[str, dict[str, Any]] = {
    "ottla": {},
    # Three JVMs are too many for a small machine: what a source of Kafka's does when it fails over
    # is in `test_mirroring`.
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


def test_logs_are_identical_while_brokers_are_killed(source: ProcessCluster) -> None:
    with run_cluster("ottla", 3) as target:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        factor = len(source.brokers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, factor)])[TOPIC].result(30)
        set_mirror(
            target.bootstrap,
            "west",
            {"bootstrap.servers": source.bootstrap, "topics": "*", "metadata.max.age.ms": "500"},
        )
        with producing(source) as acknowledged:
            eventually(
                lambda: watermarks(target.bootstrap, TOPIC, 0)[1] > 100, within_s=30, message="copying has begun"
            )
            for victim in target.brokers:
                broker = target.brokers[victim]
                if victim == 2:
                    broker.stop()  # hands over what it leads
                else:
                    broker.kill()
                more(acknowledged)
                broker.start()
                eventually(lambda: target.is_healthy(), within_s=60, message=lambda: str(target.health_problems()))
                more(acknowledged)
            if factor > 1:
                for broker in source.brokers.values():
                    broker.kill()
                    more(acknowledged)
                    broker.start()
                    eventually(lambda: source.is_healthy(), within_s=60, message=lambda: str(source.health_problems()))
        ends = {partition: watermarks(source.bootstrap, TOPIC, partition) for partition in range(PARTITIONS)}
        for partition, end in ends.items():
            eventually(
                lambda partition=partition, end=end: watermarks(target.bootstrap, TOPIC, partition) == end,  # type: ignore[misc]
                within_s=60,
                message=lambda partition=partition, end=end: (
                    f"{partition}: {watermarks(target.bootstrap, TOPIC, partition)} is {end}"
                ),  # type: ignore[misc]
            )
            assert seen(target.bootstrap, TOPIC, partition) == seen(source.bootstrap, TOPIC, partition)
        eventually(lambda: target.is_healthy(), within_s=60, message=lambda: str(target.health_problems()))
        assert sum(end for _, end in ends.values()) == acknowledged[0]
        for partition in range(PARTITIONS):
            there = log_bytes(source.brokers[1].log_dir, TOPIC, partition)
            for broker in target.brokers.values():
                assert log_bytes(broker.log_dir, TOPIC, partition) == there


@pytest.mark.parametrize("source", ["ottla"], indirect=True)
def test_failover_while_a_broker_is_killed(source: ProcessCluster) -> None:
    """Below the reported offset the log is the source's; above it are the records that were
    acknowledged here, each once.
    """
    with run_cluster("ottla", 3) as target:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        set_mirror(target.bootstrap, "west", {"bootstrap.servers": source.bootstrap, "topics": TOPIC})
        with producing(source) as acknowledged:
            more(acknowledged)
            eventually(
                lambda: watermarks(target.bootstrap, TOPIC, 0)[1] > 100, within_s=30, message="copying has begun"
            )
            victim = target.partition_state(TOPIC, 0).leader
            set_mirror(target.bootstrap, "west", {"role": "FailedOver"})
            target.brokers[victim].kill()
            with writing(target) as written:
                eventually(lambda: len(written) > 500, within_s=60, message="the copy takes records")
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
def writing(target: ProcessCluster) -> Iterator[list[tuple[bytes, int]]]:
    """Produces to all partitions of a mirrored topic as soon as they are writable; yields
    acknowledged records.
    """
    acknowledged: list[tuple[bytes, int]] = []

    def one_more(message: Message) -> None:
        acknowledged.append((message.value() or b"", message.partition() or 0))

    with produce_in_background(
        target.bootstrap, TOPIC, PARTITIONS, lambda number: f"ours {number}", one_more, lambda why: None
    ):
        yield acknowledged
