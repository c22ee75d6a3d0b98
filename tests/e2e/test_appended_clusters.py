"""Two sources are appended to one topic of a cluster of three brokers that are killed meanwhile:
each record arrives once, in its source's order.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BROKERS
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.background_producer import fail_on_rejected_record, produce_in_background
from tests.e2e.mirroring import log_bytes, seen
from tests.e2e.test_appended_mirroring import append
from tests.e2e.test_mirror_names import create
from tests.waiting import eventually

TOPIC = "flights"
PARTITIONS = 2


@contextmanager
def producing(bootstrap: str, name: str) -> Iterator[list[int]]:
    """Produces `<name> <number>` to all partitions in turn; yields the acknowledged records per
    partition.
    """
    acknowledged = [0] * PARTITIONS

    def one_more(message: Message) -> None:
        acknowledged[message.partition() or 0] += 1

    with produce_in_background(
        bootstrap, TOPIC, PARTITIONS, lambda number: f"{name} {number // PARTITIONS}", one_more, fail_on_rejected_record
    ):
        yield acknowledged


def more(target: ProcessCluster, acknowledged: list[int], records: int = 1000) -> None:
    wanted = sum(acknowledged) + records
    eventually(lambda: sum(acknowledged) >= wanted, within_s=60, message="the load goes on")


def values(target: ProcessCluster, partition: int) -> dict[str, list[bytes]]:
    """Values by source."""
    found: dict[str, list[bytes]] = {}
    for one in seen(target.bootstrap, TOPIC, partition, isolation="read_committed"):
        value = one.value or b""
        found.setdefault(value.split()[0].decode(), []).append(value)
    return found


def test_two_sources_are_appended_once_while_brokers_are_killed() -> None:
    with BROKERS["ottla"]() as west, BROKERS["ottla"]() as east, run_cluster("ottla", 3) as target:
        for broker in (west, east):
            create(broker, TOPIC, PARTITIONS)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        here = next(iter(target.brokers.values()))
        append(west, here, "west")
        append(east, here, "east")
        with (
            producing(west.bootstrap, "west") as from_west,
            producing(east.bootstrap, "east") as from_east,
            producing(target.bootstrap, "ours") as ours,
        ):
            for victim, broker in target.brokers.items():
                if victim == 2:
                    broker.stop()  # hands over what it leads
                else:
                    broker.kill()
                more(target, from_west)
                broker.start()
                eventually(lambda: target.is_healthy(), within_s=60, message=lambda: str(target.health_problems()))
                more(target, from_east)
            west.kill()
            more(target, from_east)
            west.start()
            more(target, from_west)
        for partition in range(PARTITIONS):
            wanted = {
                name: [f"{name} {number}".encode() for number in range(acknowledged[partition])]
                for name, acknowledged in (("west", from_west), ("east", from_east), ("ours", ours))
            }
            total = sum(map(len, wanted.values()))
            eventually(
                lambda partition=partition, total=total: sum(map(len, values(target, partition).values())) >= total,  # type: ignore[misc]
                within_s=60,
                message=lambda partition=partition, total=total: (  # type: ignore[misc]
                    f"{ {name: len(found) for name, found in values(target, partition).items()} } of {total}"
                ),
            )
            found = values(target, partition)
            for name, records in wanted.items():
                assert found[name] == records, name
        eventually(lambda: target.is_healthy(), within_s=60, message=lambda: str(target.health_problems()))
        for partition in range(PARTITIONS):
            logs = {log_bytes(broker.log_dir, TOPIC, partition) for broker in target.brokers.values()}
            assert len(logs) == 1, "all replicas hold the same bytes"
