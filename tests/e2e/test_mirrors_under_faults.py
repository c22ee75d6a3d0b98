"""Failover and failback of two clusters of three brokers under faults: brokers of both sides are
killed or stopped, the source is paused, its oldest records are deleted, and a topic is recreated.
The seed decides which broker fails, and whether it is killed or stopped.

Invariants: below the offset that a failover reports, both logs are identical. Every acknowledged
record is once in the log of the writable cluster, or among the saved diverged records. At the end
both clusters have the same records.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.failback_sites import record_values, saved_segments
from tests.e2e.mirror_load import PARTITIONS, TOPIC, produce_to_source, produce_to_target, wait_for_acknowledgements
from tests.e2e.mirroring import (
    describe_partition,
    mirror_status,
    mirror_topics,
    produce,
    read_log_bytes,
    read_records,
    read_watermarks,
    set_mirror,
)
from tests.waiting import eventually

RECREATED = "again"  # a topic that is deleted and created again
PAUSED_FOR_RECORDS = 400  # acknowledged by the other cluster while the old source is paused


def fail_a_broker(cluster: ProcessCluster, random: Random, meanwhile: Callable[[], None]) -> None:
    """Kills or stops a random broker, calls `meanwhile`, and starts the broker again."""
    victim = cluster.brokers[random.choice(sorted(cluster.brokers))]
    if random.random() < 0.3:
        victim.stop()
    else:
        victim.kill()
    meanwhile()
    victim.start()
    cluster.wait_until_healthy()


def wait_until_same(one: ProcessCluster, other: ProcessCluster, topic: str, partition: int) -> None:
    """Waits for the same watermarks, and asserts that both clusters have the same records."""
    eventually(
        lambda: read_watermarks(one.bootstrap, topic, partition) == read_watermarks(other.bootstrap, topic, partition),
        within_s=60,
        message=lambda: (
            f"{topic}-{partition}: {describe_partition(one.bootstrap, topic, partition)}; "
            f"{describe_partition(other.bootstrap, topic, partition)}"
        ),
    )
    assert read_records(one.bootstrap, topic, partition) == read_records(other.bootstrap, topic, partition)


def divergence(cluster: ProcessCluster, partition: int) -> tuple[str, int]:
    """State of the mirrored partition and its number of diverging records."""
    status = mirror_status(cluster.bootstrap, TOPIC, partition)
    return status.get("state", ""), status.get("diverging", 0)


def read_values(cluster: ProcessCluster, partition: int, offset: int = 0) -> list[bytes]:
    """Values of the records from this offset on."""
    records = read_records(cluster.bootstrap, TOPIC, partition)
    return [record.value or b"" for record in records if record.offset >= offset]


def saved_values(cluster: ProcessCluster, partition: int) -> set[bytes]:
    """Values of all saved diverged records."""
    found: set[bytes] = set()
    for broker in cluster.brokers.values():
        for path in saved_segments(broker.log_dir, partition):
            found |= {value or b"" for value in record_values(path)}
    return found


def test_failover_and_failback_under_faults() -> None:
    random = Random(1)
    with run_cluster("ottla", 3) as a, run_cluster("ottla", 3) as b:
        admin = AdminClient({"bootstrap.servers": a.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3), NewTopic(RECREATED, 1, 3)]).values():
            created.result(30)
        produce(a.bootstrap, RECREATED, [b"first life"] * 20)
        mirror_topics(a, b, "west", topics=f"{TOPIC},{RECREATED}", on_source_truncation="Resync")
        with produce_to_source(a) as acknowledged:
            eventually(
                lambda: read_watermarks(b.bootstrap, TOPIC, 0)[1] > 50, within_s=30, message="fifty copied records"
            )
            for cluster in random.sample((a, b), 2):
                fail_a_broker(cluster, random, lambda: wait_for_acknowledgements(acknowledged, 300))
            new_start = TopicPartition(TOPIC, 0, read_watermarks(a.bootstrap, TOPIC, 0)[1] // 2)
            admin.delete_records([new_start])[new_start].result(30)
            admin.delete_topics([RECREATED])[RECREATED].result(30)
            eventually(lambda: RECREATED not in admin.list_topics(timeout=10).topics, within_s=30)
            admin.create_topics([NewTopic(RECREATED, 1, 3)])[RECREATED].result(30)
            produce(a.bootstrap, RECREATED, [b"second life"] * 7)
            eventually(
                lambda: read_watermarks(b.bootstrap, TOPIC, 0)[0] == new_start.offset,
                within_s=30,
                message="the source's log start",
            )
            eventually(
                lambda: read_watermarks(b.bootstrap, RECREATED, 0) == (0, 7),
                within_s=30,
                message="the recreated topic's records",
            )
            # The failover happens while records are produced and a broker of the target fails.
            set_mirror(b.bootstrap, "west", {"role": "FailedOver"})
            fail_a_broker(b, random, lambda: wait_for_acknowledgements(acknowledged, 300))
        with produce_to_target(b) as written:
            eventually(
                lambda: len(written) > PAUSED_FOR_RECORDS,
                within_s=60,
                message=f"{PAUSED_FOR_RECORDS} records acknowledged by the target",
            )
            for broker in a.brokers.values():
                broker.pause()  # the old source does not respond
            eventually(lambda: len(written) > 2 * PAUSED_FOR_RECORDS, within_s=60)
            for broker in a.brokers.values():
                broker.resume()
        a.wait_until_healthy()
        ends = check_failover(a, b)
        tails = {partition: read_values(a, partition, end) for partition, end in ends.items()}
        assert any(tails.values()), "records were produced after the failover and not copied"
        mirror_topics(b, a, "back", topics=f"{TOPIC},{RECREATED}")
        for partition, tail in tails.items():
            expected = ("Diverged", len(tail)) if tail else ("Replicating", 0)
            eventually(
                lambda partition=partition, expected=expected: divergence(a, partition) == expected,  # type: ignore[misc]
                within_s=60,
                message=lambda partition=partition, expected=expected: (
                    f"{expected}: {mirror_status(a.bootstrap, TOPIC, partition)}"
                ),  # type: ignore[misc]
            )
        mirror_topics(b, a, "back", topics=f"{TOPIC},{RECREATED}", on_divergence="Truncate")
        fail_a_broker(a, random, lambda: produce(b.bootstrap, TOPIC, [b"meanwhile"] * 50))
        fail_a_broker(b, random, lambda: produce(b.bootstrap, TOPIC, [b"meanwhile"] * 50, partition=1))
        for partition, tail in tails.items():
            wait_until_same(a, b, TOPIC, partition)
            assert set(tail) <= saved_values(a, partition)
            found = Counter(read_values(a, partition))
            assert all(found[value] == 1 for value, at in written if at == partition), (
                "each acknowledged record is there once"
            )
        wait_until_same(a, b, RECREATED, 0)

        set_mirror(a.bootstrap, "back", {"role": "FailedOver"})
        fail_a_broker(a, random, lambda: None)
        for partition in range(PARTITIONS):
            eventually(
                lambda p=partition: mirror_status(a.bootstrap, TOPIC, p).get("state") == "FailedOver",  # type: ignore[misc]
                within_s=30,
            )
            produce(a.bootstrap, TOPIC, [b"home"] * 30, partition=partition)
        mirror_topics(a, b, "west", topics=f"{TOPIC},{RECREATED}", role="Replicate")
        fail_a_broker(b, random, lambda: None)
        for partition in range(PARTITIONS):
            wait_until_same(a, b, TOPIC, partition)
            assert read_values(b, partition)[-30:] == [b"home"] * 30
            assert not saved_values(b, partition), "b had no records that a lacked"
        for cluster in (a, b):
            cluster.wait_until_healthy()
            for partition in range(PARTITIONS):
                logs = {read_log_bytes(broker.log_dir, TOPIC, partition) for broker in cluster.brokers.values()}
                assert len(logs) == 1, "all replicas have the same bytes"


def check_failover(a: ProcessCluster, b: ProcessCluster) -> dict[int, int]:
    """Asserts that both logs are identical below the failover offset. Returns that offset by
    partition.
    """
    offsets: dict[int, int] = {}
    for partition in range(PARTITIONS):
        status = mirror_status(b.bootstrap, TOPIC, partition)
        assert status["state"] == "FailedOver"
        end = offsets[partition] = status["end"]
        records_of_a, records_of_b = (
            [record for record in read_records(cluster.bootstrap, TOPIC, partition) if record.offset < end]
            for cluster in (a, b)
        )
        assert records_of_a == records_of_b and records_of_a
    return offsets
