"""Two sources are appended to one topic of a cluster of three brokers, which are killed or stopped
meanwhile, as is one source: each record arrives once, in its source's order.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import run_ottla_broker
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.background_producer import fail_on_rejected_record, produce_in_background
from tests.e2e.mirroring import append_topics, create_topic, read_log_bytes, read_records
from tests.waiting import eventually

TOPIC = "flights"
PARTITIONS = 2


@contextmanager
def produce_to(bootstrap: str, name: str) -> Iterator[list[int]]:
    """Produces `<name> <number>` to all partitions in turn; yields the number of acknowledged
    records of each partition.
    """
    acknowledged = [0] * PARTITIONS

    def count_record(message: Message) -> None:
        acknowledged[message.partition() or 0] += 1

    with produce_in_background(
        bootstrap,
        TOPIC,
        PARTITIONS,
        lambda number: f"{name} {number // PARTITIONS}",
        count_record,
        fail_on_rejected_record,
    ):
        yield acknowledged


def wait_for_acknowledgements(acknowledged: list[int], count: int = 1000) -> None:
    """Waits until this number of further records is acknowledged."""
    expected = sum(acknowledged) + count
    eventually(lambda: sum(acknowledged) >= expected, within_s=60, message=f"{count} more acknowledged records")


def values_by_source(target: ProcessCluster, partition: int) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for record in read_records(target.bootstrap, TOPIC, partition, isolation="read_committed"):
        value = record.value or b""
        found.setdefault(value.split()[0].decode(), []).append(value)
    return found


@pytest.mark.slow
def test_two_sources_are_appended_once_while_brokers_are_killed() -> None:
    with run_ottla_broker() as west, run_ottla_broker() as east, run_cluster("ottla", 3) as target:
        for broker in (west, east):
            create_topic(broker, TOPIC, PARTITIONS)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        append_topics(west, target, "west")
        append_topics(east, target, "east")
        with (
            produce_to(west.bootstrap, "west") as from_west,
            produce_to(east.bootstrap, "east") as from_east,
            produce_to(target.bootstrap, "ours") as ours,
        ):
            for victim, broker in target.brokers.items():
                if victim == 2:
                    broker.stop()  # a controlled shutdown: its partitions get other leaders
                else:
                    broker.kill()
                wait_for_acknowledgements(from_west)
                broker.start()
                target.wait_until_healthy()
                wait_for_acknowledgements(from_east)
            west.kill()
            wait_for_acknowledgements(from_east)
            west.start()
            wait_for_acknowledgements(from_west)
        for partition in range(PARTITIONS):
            expected = {
                name: [f"{name} {number}".encode() for number in range(acknowledged[partition])]
                for name, acknowledged in (("west", from_west), ("east", from_east), ("ours", ours))
            }
            total = sum(map(len, expected.values()))
            eventually(
                lambda partition=partition, total=total: (
                    sum(map(len, values_by_source(target, partition).values())) >= total
                ),  # type: ignore[misc]
                within_s=60,
                message=lambda partition=partition, total=total: (  # type: ignore[misc]
                    f"{ {name: len(found) for name, found in values_by_source(target, partition).items()} } of {total}"
                ),
            )
            found = values_by_source(target, partition)
            for name, records in expected.items():
                assert found[name] == records, name
        target.wait_until_healthy()
        for partition in range(PARTITIONS):
            logs = {read_log_bytes(broker.log_dir, TOPIC, partition) for broker in target.brokers.values()}
            assert len(logs) == 1, "all replicas hold the same bytes"
