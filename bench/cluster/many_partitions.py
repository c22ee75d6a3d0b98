"""10,000 partitions on three brokers: created, idle, one broker restarted, one broker killed."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from confluent_kafka.admin import NewTopic

from bench.cluster.load_size import LoadSize
from ottla_broker.wire.errors import KafkaError
from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster
from tests.waiting import eventually

PARTITIONS_PER_TOPIC = 500
WITHIN_S = 600.0


def measure_many_partitions(
    run_cluster: Callable[..., AbstractContextManager[ProcessCluster]], selected: Sequence[str], load_size: LoadSize
) -> dict[str, float]:
    found: dict[str, float] = {}
    per_topic = min(PARTITIONS_PER_TOPIC, load_size.partitions)
    names = [f"many-{number}" for number in range(load_size.partitions // per_topic)]
    with run_cluster() as cluster:
        client = rd.admin_client(cluster.bootstrap)
        began = time.monotonic()
        for name in names:
            client.create_topics([NewTopic(name, per_topic, 3)], operation_timeout=120)[name].result(WITHIN_S)
        eventually(lambda: all_are_led(cluster, cluster.running_ids, len(names) * per_topic), within_s=WITHIN_S)
        found["10k-create"] = time.monotonic() - began
        eventually(lambda: all_are_in_sync(cluster, cluster.running_ids[0]), within_s=WITHIN_S)
        time.sleep(5)
        found["10k-cpu"] = 100 * busiest_broker_share(cluster, load_size.idle_s)
        one, observer = cluster.brokers[1], 2
        one.stop(within_s=WITHIN_S)
        began = time.monotonic()
        one.spawn()
        eventually(lambda: all_are_in_sync(cluster, observer), within_s=WITHIN_S, message="all partitions are in sync")
        found["10k-restart"] = time.monotonic() - began
        one.wait_until_ready()
        time.sleep(5)
        began = time.monotonic()
        cluster.brokers[3].kill()
        eventually(
            lambda: all_are_led(cluster, [1, 2], len(names) * per_topic),
            within_s=WITHIN_S,
            message="all partitions have leaders",
        )
        found["10k-kill"] = time.monotonic() - began
    return found


def all_are_led(cluster: ProcessCluster, by: Sequence[int], count: int) -> bool:
    """True if the first broker of `by` knows `count` partitions of the topics `many-…`, all led by
    brokers of `by`.
    """
    try:
        view = cluster.partition_states(by[0])
    except (OSError, KafkaError):
        return False
    mine = [partition for (topic, _), partition in view.items() if topic.startswith("many-")]
    return len(mine) == count and all(partition.leader in by for partition in mine)


def all_are_in_sync(cluster: ProcessCluster, observer: int) -> bool:
    """True if the broker `observer` knows that all partitions have all replicas in sync."""
    try:
        return all(partition.is_fully_in_sync for partition in cluster.partition_states(observer).values())
    except (OSError, KafkaError):
        return False


def busiest_broker_share(cluster: ProcessCluster, seconds: float) -> float:
    """The share of a core that the busiest broker uses while no client sends requests."""
    brokers = list(cluster.brokers.values())
    before, began = [broker.cpu_s() for broker in brokers], time.monotonic()
    time.sleep(seconds)
    took = [broker.cpu_s() - earlier for broker, earlier in zip(brokers, before, strict=True)]
    return max(took) / (time.monotonic() - began)
