"""Measures one side: a function for each group of lines that share a cluster."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial

from bench import under_load
from bench.cluster import acks, many_partitions
from bench.cluster.load_size import LoadSize
from bench.cluster.topics import create_topic, wait_for_first_ack, wait_until_topic_created
from bench.programs import command_log
from bench.runner import Session
from tests.brokers import BrokerProcess
from tests.clusters import ProcessCluster, run_cluster
from tests.waiting import eventually

KIB, HUNDRED = 1024, 100  # bytes of a record
PARTITIONS = 6
STEADY_PER_S = 2000
WATCH_PER_S = 200
NEW_TOPICS = 15
IDLE_S = 0.7  # longer than `replica.fetch.wait.max.ms`, so that every follower waits for records
WATCHED = "watched"
HEALTHY_WITHIN_S = 180.0
# A request on a silent connection waits for the client's timeout, by default one minute in
# librdkafka. Clients of both sides have this shorter one.
SHORT_CLIENT_TIMEOUTS = ("socket.timeout.ms=1000", "request.timeout.ms=1000")
KAFKA_HEAP = ("-Xms1g", "-Xmx1g")
STEADY_LATENCY = {"latency-p50": "p50", "latency-p99": "p99", "latency-p99.9": "p999"}

RunCluster = Callable[..., AbstractContextManager[ProcessCluster]]


def cluster_runner(kind: str) -> RunCluster:
    """Function that runs three brokers with default settings. `kind`: ottla or kafka."""
    return partial(run_cluster, kind, 3, test_settings=False, jvm=KAFKA_HEAP)


def measure_load(run_cluster: RunCluster, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    found: dict[str, float] = {}
    with run_cluster(start=False) as cluster:
        for broker in cluster.brokers.values():
            broker.command(broker)  # formats Kafka's folders before the clock starts
        began = time.monotonic()
        for broker in cluster.brokers.values():
            broker.spawn()
        asyncio.run(wait_for_first_ack(cluster.bootstrap, "first", 3, within_s=120))
        found["start"] = time.monotonic() - began
        for broker in cluster.brokers.values():
            broker.wait_until_ready()
        time.sleep(2)  # lets background work of the start finish
        found["memory"] = sum(broker.resident_memory_kib() for broker in cluster.brokers.values()) / 1024
        for name, size, records in (("produce-1k", KIB, load_size.large), ("produce-100", HUNDRED, load_size.small)):
            if name in selected:
                create_topic(cluster, name, PARTITIONS)
                acks.measure_flood(cluster.bootstrap, name, PARTITIONS, size, records // 4)
                before = _cpu_s(cluster)
                found[name] = acks.measure_flood(cluster.bootstrap, name, PARTITIONS, size, records)
                command_log[-1] += f"\n      CPU of the brokers: {_cpu_s(cluster) - before:.2f} s"
        if any(name in STEADY_LATENCY for name in selected):
            create_topic(cluster, "steady", PARTITIONS)
            measure = partial(acks.measure_steady_latency, cluster.bootstrap, "steady", PARTITIONS, KIB, STEADY_PER_S)
            measure(load_size.warm_s)
            before = _cpu_s(cluster)
            latencies = measure(load_size.steady_s)
            command_log[-1] += f"\n      CPU of the brokers: {_cpu_s(cluster) - before:.2f} s"
            found |= {name: latencies[key] * 1000 for name, key in STEADY_LATENCY.items()}
        if "new-topic" in selected:
            found["new-topic"] = _measure_new_topics_s(cluster)
    return found


def _measure_new_topics_s(cluster: ProcessCluster) -> float:
    """The longest time from the creation of a topic to its first acknowledged record."""
    took = []
    for number in _log_repetitions(NEW_TOPICS, "first record of a new topic"):
        time.sleep(IDLE_S)
        began = time.monotonic()
        asyncio.run(wait_for_first_ack(cluster.bootstrap, f"new-{number}", 3, within_s=60))
        took.append(time.monotonic() - began)
    _log_values(took)
    return max(took)


def _cpu_s(cluster: ProcessCluster) -> float:
    return sum(broker.cpu_s() for broker in cluster.brokers.values())


def measure_under_load(run_cluster: RunCluster, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    per_s = _sustained_per_s(load_size)
    with run_cluster() as cluster:
        create_topic(cluster, under_load.TOPIC, under_load.PARTITIONS)
        under_load.measure_flood(cluster.bootstrap, load_size.sustained)  # warms up
        return under_load.measure_shares(
            cluster.bootstrap, per_s, selected, load_size.under_load_warm_s, load_size.under_load_s
        )


@cache
def _sustained_per_s(load_size: LoadSize) -> float:
    """Records per second that three warm Apache Kafka brokers sustain."""
    with cluster_runner("kafka")() as cluster:
        create_topic(cluster, under_load.TOPIC, under_load.PARTITIONS)
        seconds = load_size.under_load_warm_s + load_size.under_load_s
        return under_load.find_sustained_rate(cluster.bootstrap, load_size.sustained, seconds)


def measure_faults(run_cluster: RunCluster, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    found: dict[str, float] = {}
    with run_cluster() as cluster:
        create_topic(cluster, WATCHED, 1)
        if any(name.startswith("killed") for name in selected):
            took = [
                longest_ack_gap_s(cluster, BrokerProcess.kill, BrokerProcess.start)
                for _ in _log_repetitions(load_size.kills, "SIGKILL of the leader")
            ]
            found |= {"killed-p50": statistics.median(took), "killed-p95": percentile(took, 95)}
            _log_values(took)
        if "silent-p95" in selected:
            repetitions = _log_repetitions(load_size.pauses, "SIGSTOP of the leader")
            took = [
                longest_ack_gap_s(cluster, BrokerProcess.pause, BrokerProcess.resume, *SHORT_CLIENT_TIMEOUTS)
                for _ in repetitions
            ]
            found["silent-p95"] = percentile(took, 95)
            _log_values(took)
        if "planned" in selected:
            took = [
                longest_ack_gap_s(cluster, _restart, _do_nothing)
                for _ in _log_repetitions(load_size.restarts, "SIGTERM of the leader")
            ]
            found["planned"] = max(took)
            _log_values(took)
        if "controller" in selected:
            repetitions = _log_repetitions(load_size.controller_kills, "SIGKILL of the controller")
            took = [topic_creation_after_controller_loss_s(cluster, number) for number in repetitions]
            found["controller"] = statistics.median(took)
            _log_values(took)
    return found


def longest_ack_gap_s(
    cluster: ProcessCluster,
    inject_fault: Callable[[BrokerProcess], object],
    repair: Callable[[BrokerProcess], object],
    *settings: str,
) -> float:
    """The longest time without an acknowledgement from just before a fault of the watched topic's
    leader until acknowledgements are steady again. Afterwards the fault is repaired and the cluster
    healthy. Raises RuntimeError if a record was not acknowledged.
    """
    cluster.wait_until_healthy(within_s=HEALTHY_WITHIN_S)
    with acks.record_ack_times(
        cluster.bootstrap, WATCHED, WATCH_PER_S, "message.timeout.ms=120000", *settings
    ) as watch:
        began = time.monotonic()
        eventually(lambda: watch.has_acks_after(began + 1.0), within_s=60, message="acknowledgements")
        leader = cluster.brokers[cluster.partition_state(WATCHED).leader]
        fault_at = time.monotonic()
        inject_fault(leader)
        # Acknowledgements in flight may still arrive; after them there is a gap, then a steady
        # stream.
        settled_at = time.monotonic() + 0.3
        eventually(lambda: _acks_are_steady(watch, settled_at), within_s=120, message="acknowledgements again")
        gap = watch.longest_gap_s(fault_at, time.monotonic())
        repair(leader)
        cluster.wait_until_healthy(within_s=HEALTHY_WITHIN_S)
    if watch.failed:
        raise RuntimeError(f"{watch.failed} records were rejected while {leader.bootstrap} was unavailable")
    return gap


def _acks_are_steady(watch: acks.AckTimes, since: float) -> bool:
    """True if acknowledgements arrived for half a second, the last one just now."""
    recent = [at for at in watch.times[-WATCH_PER_S:] if at > since]
    return bool(recent) and recent[-1] - recent[0] > 0.5 and time.monotonic() - recent[-1] < 0.1


def topic_creation_after_controller_loss_s(cluster: ProcessCluster, number: int) -> float:
    """Seconds from the controller's failure until a topic with two replicas is created: three would
    need the failed broker.
    """
    cluster.wait_until_healthy(within_s=HEALTHY_WITHIN_S)
    controller = cluster.controller_id()
    others = ",".join(broker.bootstrap for n, broker in cluster.brokers.items() if n != controller)
    began = time.monotonic()
    cluster.brokers[controller].kill()
    asyncio.run(wait_until_topic_created(others, f"after-{number}", 2, within_s=120))
    took = time.monotonic() - began
    cluster.brokers[controller].start()
    cluster.wait_until_healthy(within_s=HEALTHY_WITHIN_S)
    return took


def percentile(values: Sequence[float], of_hundred: int) -> float:
    """The smallest value that `of_hundred` percent of the values do not exceed."""
    return sorted(values)[-(-len(values) * of_hundred // 100) - 1]


def _restart(broker: BrokerProcess) -> None:
    broker.stop(within_s=60)
    broker.start()


def _do_nothing(broker: BrokerProcess) -> None:
    """The broker is already back."""


def _log_repetitions(count: int, what: str) -> range:
    """The repetitions to loop over, which are added to the log of commands."""
    command_log.append(f"{count} × {what}")
    return range(count)


def _log_values(took: Sequence[float]) -> None:
    command_log[-1] += "\n      " + " ".join(f"{value:.3f}" for value in took) + " s"


SESSIONS: tuple[Session[RunCluster, LoadSize], ...] = (
    Session(("start", "memory", "produce", *STEADY_LATENCY, "new-topic"), 3, measure_load),
    Session(("latency-under-load",), 1, measure_under_load),
    Session(("killed", "silent", "planned", "controller"), 1, measure_faults),
    Session(("10k",), 1, many_partitions.measure_many_partitions),
)
