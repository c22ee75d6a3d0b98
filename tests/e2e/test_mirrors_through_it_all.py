"""Two clusters of three, and everything at once: brokers of both sides die, the link falls silent,
the source's log loses its head and a topic is made anew, the copy takes over in the middle of it,
and the old source comes home. The seed decides who dies when.

What must hold: below the offset that a failover reports the two logs are one; every record that was
acknowledged is in the log of who leads the topic, once, or in a file beside the partition that was
cut; and in the end both sides are the same.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla_broker.wire.records import iter_records
from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.mirroring import log_bytes, produce, seen, set_mirror, status, watermarks
from tests.e2e.test_mirrors_of_clusters import PARTITIONS, TOPIC, more, producing, writing
from tests.waiting import eventually

AGAIN = "again"  # the topic that is made anew
SILENT_FOR = 400  # records that are acknowledged elsewhere meanwhile


def healthy(cluster: ProcessCluster) -> None:
    eventually(lambda: cluster.is_healthy(), within_s=60, message=lambda: str(cluster.health_problems()))


def one_dies(cluster: ProcessCluster, random: Random, meanwhile: Callable[[], None]) -> None:
    victim = cluster.brokers[random.choice(sorted(cluster.brokers))]
    if random.random() < 0.3:
        victim.stop()
    else:
        victim.kill()
    meanwhile()
    victim.start()
    healthy(cluster)


def mirror(at: ProcessCluster, name: str, source: ProcessCluster, **settings: str) -> None:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    base = {"bootstrap.servers": source.bootstrap, "topics": f"{TOPIC},{AGAIN}", "metadata.max.age.ms": "500"}
    set_mirror(at.bootstrap, name, base | given)


def same(one: ProcessCluster, other: ProcessCluster, topic: str, partition: int) -> None:
    eventually(
        lambda: watermarks(one.bootstrap, topic, partition) == watermarks(other.bootstrap, topic, partition),
        within_s=60,
        message=lambda: (
            f"{topic}-{partition}: {watermarks(one.bootstrap, topic, partition)}, {status(one.bootstrap, topic, partition)}; "
            f"{watermarks(other.bootstrap, topic, partition)}, {status(other.bootstrap, topic, partition)}"
        ),
    )
    assert seen(one.bootstrap, topic, partition) == seen(other.bootstrap, topic, partition)


def state(cluster: ProcessCluster, partition: int) -> tuple[str, int]:
    told = status(cluster.bootstrap, TOPIC, partition)
    return told.get("state", ""), told.get("diverging", 0)


def values(cluster: ProcessCluster, partition: int) -> list[bytes]:
    return [one.value or b"" for one in seen(cluster.bootstrap, TOPIC, partition)]


def saved(cluster: ProcessCluster, partition: int) -> set[bytes]:
    """Values of all saved diverged records."""
    found: set[bytes] = set()
    for broker in cluster.brokers.values():
        for path in (Path(broker.log_dir) / f"{TOPIC}-{partition}" / "diverged").glob("*-epoch-*[0-9]/*.log"):
            found |= {record.value or b"" for _, record in iter_records(path.read_bytes())}
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1])
def test_failover_and_failback_under_faults(seed: int) -> None:
    random = Random(seed)
    with run_cluster("ottla", 3) as a, run_cluster("ottla", 3) as b:
        admin = AdminClient({"bootstrap.servers": a.bootstrap})
        for told in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3), NewTopic(AGAIN, 1, 3)]).values():
            told.result(30)
        produce(a.bootstrap, AGAIN, [b"first life"] * 20)
        mirror(b, "west", a, on_source_truncation="Resync")
        with producing(a) as acknowledged:
            eventually(lambda: watermarks(b.bootstrap, TOPIC, 0)[1] > 50, within_s=30, message="copying has begun")
            for cluster in random.sample((a, b), 2):
                one_dies(cluster, random, lambda: more(acknowledged, 300))
            where = TopicPartition(TOPIC, 0, watermarks(a.bootstrap, TOPIC, 0)[1] // 2)
            admin.delete_records([where])[where].result(30)
            admin.delete_topics([AGAIN])[AGAIN].result(30)
            eventually(lambda: AGAIN not in admin.list_topics(timeout=10).topics, within_s=30)
            admin.create_topics([NewTopic(AGAIN, 1, 3)])[AGAIN].result(30)
            produce(a.bootstrap, AGAIN, [b"second life"] * 7)
            eventually(
                lambda: watermarks(b.bootstrap, TOPIC, 0)[0] == where.offset, within_s=30, message="its head goes here"
            )
            eventually(lambda: watermarks(b.bootstrap, AGAIN, 0) == (0, 7), within_s=30, message="it is copied anew")
            # The failover comes while records come, and while a broker of the side that takes over
            # dies.
            set_mirror(b.bootstrap, "west", {"role": "FailedOver"})
            one_dies(b, random, lambda: more(acknowledged, 300))
        with writing(b) as written:
            eventually(lambda: len(written) > SILENT_FOR, within_s=60, message="the copy takes records")
            for broker in a.brokers.values():
                broker.pause()  # the old source is away, and says nothing
            eventually(lambda: len(written) > 2 * SILENT_FOR, within_s=60)
            for broker in a.brokers.values():
                broker.resume()
        healthy(a)
        ends = check_failover(a, b)
        tails = {partition: values_from(a, partition, end) for partition, end in ends.items()}
        assert any(tails.values()), "the load went on, so that something was never copied"
        mirror(a, "back", b)
        for partition, tail in tails.items():
            wanted = ("Diverged", len(tail)) if tail else ("Replicating", 0)
            eventually(
                lambda partition=partition, wanted=wanted: state(a, partition) == wanted,  # type: ignore[misc]
                within_s=60,
                message=lambda partition=partition, wanted=wanted: f"{wanted}: {status(a.bootstrap, TOPIC, partition)}",  # type: ignore[misc]
            )
        mirror(a, "back", b, on_divergence="Truncate")
        one_dies(a, random, lambda: produce(b.bootstrap, TOPIC, [b"meanwhile"] * 50))
        one_dies(b, random, lambda: produce(b.bootstrap, TOPIC, [b"meanwhile"] * 50, partition=1))
        for partition, tail in tails.items():
            same(a, b, TOPIC, partition)
            assert set(tail) <= saved(a, partition)
            found = Counter(values(a, partition))
            assert all(found[value] == 1 for value, at in written if at == partition), "each once"
        same(a, b, AGAIN, 0)

        set_mirror(a.bootstrap, "back", {"role": "FailedOver"})
        one_dies(a, random, lambda: None)
        for partition in range(PARTITIONS):
            eventually(lambda p=partition: status(a.bootstrap, TOPIC, p).get("state") == "FailedOver", within_s=30)  # type: ignore[misc]
            produce(a.bootstrap, TOPIC, [b"home"] * 30, partition=partition)
        mirror(b, "west", a, role="Replicate")
        one_dies(b, random, lambda: None)
        for partition in range(PARTITIONS):
            same(a, b, TOPIC, partition)
            assert values(b, partition)[-30:] == [b"home"] * 30
            assert not saved(b, partition), "b had nothing that a had not"
        for cluster in (a, b):
            healthy(cluster)
            for partition in range(PARTITIONS):
                logs = {log_bytes(broker.log_dir, TOPIC, partition) for broker in cluster.brokers.values()}
                assert len(logs) == 1, "every replica holds the same"


def values_from(cluster: ProcessCluster, partition: int, offset: int) -> list[bytes]:
    return [one.value or b"" for one in seen(cluster.bootstrap, TOPIC, partition) if one.offset >= offset]


def check_failover(a: ProcessCluster, b: ProcessCluster) -> dict[int, int]:
    """Partition → the offset from which records are b's own; below it both logs are identical."""
    ends: dict[int, int] = {}
    for partition in range(PARTITIONS):
        told = status(b.bootstrap, TOPIC, partition)
        assert told["state"] == "FailedOver"
        ends[partition] = told["end"]
        here, there = (
            [one for one in seen(cluster.bootstrap, TOPIC, partition) if one.offset < told["end"]] for cluster in (a, b)
        )
        assert here == there and here
    return ends
