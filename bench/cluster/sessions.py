"""One side through the lines: a function for each group of lines that share a cluster, and how often it is repeated."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from bench.cluster import acks, many
from bench.cluster.topics import create, first_ack, topic_created
from bench.programs import commands
from bench.turns import Session
from tests.clusters import ProcessCluster, run_cluster
from tests.waiting import eventually

KIB, HUNDRED, PARTITIONS = 1024, 100, 6
STEADY_PER_S = 2000
WATCH_PER_S = 200
WATCHED = "watched"
HEALS_WITHIN_S = 180.0
# A request that lies in a silent connection waits for its client's own time-out, librdkafka's being a minute: short for both.
IMPATIENT = ("socket.timeout.ms=1000", "request.timeout.ms=1000")
KAFKAS_HEAP = ("-Xms1g", "-Xmx1g")

NewCluster = Callable[..., AbstractContextManager[ProcessCluster]]


@dataclass(frozen=True)
class Amounts:
    """How much is done. Records, but for `*_s` (seconds); `kills` and so on: how many times."""

    large: int = 600_000
    small: int = 2_500_000
    steady_s: float = 30.0
    warm_s: float = 10.0
    kills: int = 20
    pauses: int = 10
    controllers: int = 5
    restarts: int = 6
    partitions: int = 10_000
    idle_s: float = 10.0


QUICK = Amounts(60_000, 250_000, 3.0, 1.0, 2, 1, 1, 1, 600, 3.0)


def new_cluster(kind: str) -> NewCluster:
    return partial(run_cluster, kind, 3, test_settings=False, jvm=KAFKAS_HEAP)


def load(side: NewCluster, wanted: Sequence[str], amounts: Amounts) -> dict[str, float]:
    found: dict[str, float] = {}
    with side(start=False) as cluster:
        for broker in cluster.brokers.values():
            broker.command(broker)  # Kafka's folders are formatted before the clock runs
        began = time.monotonic()
        for broker in cluster.brokers.values():
            broker.spawn()
        asyncio.run(first_ack(cluster.bootstrap, "first", 3, within_s=120))
        found["start"] = time.monotonic() - began
        for broker in cluster.brokers.values():
            broker.wait_until_ready()
        time.sleep(2)  # whatever a start leaves to be done comes to its end
        found["memory"] = sum(broker.resident_memory_kib() for broker in cluster.brokers.values()) / 1024
        for name, size, records in (("produce-1k", KIB, amounts.large), ("produce-100", HUNDRED, amounts.small)):
            if name in wanted:
                create(cluster, name, PARTITIONS)
                acks.flood(cluster.bootstrap, name, PARTITIONS, size, records // 4)
                before = _cpu_s(cluster)
                found[name] = acks.flood(cluster.bootstrap, name, PARTITIONS, size, records)
                commands[-1] += f"\n      the brokers took {_cpu_s(cluster) - before:.2f} s of processor time"
        if any(name.startswith("latency") for name in wanted):
            create(cluster, "steady", PARTITIONS)
            ask = partial(acks.steady, cluster.bootstrap, "steady", PARTITIONS, KIB, STEADY_PER_S)
            ask(amounts.warm_s)
            before = _cpu_s(cluster)
            took = ask(amounts.steady_s)
            commands[-1] += f"\n      the brokers took {_cpu_s(cluster) - before:.2f} s of processor time"
            found |= {f"latency-{name}": took[key] * 1000 for name, key in PERCENTILES.items()}
    return found


PERCENTILES = {"p50": "p50", "p99": "p99", "p99.9": "p999"}


def _cpu_s(cluster: ProcessCluster) -> float:
    return sum(broker.cpu_s() for broker in cluster.brokers.values())


def faults(side: NewCluster, wanted: Sequence[str], amounts: Amounts) -> dict[str, float]:
    found: dict[str, float] = {}
    with side() as cluster:
        create(cluster, WATCHED, 1)
        if any(name.startswith("killed") for name in wanted):
            took = [without_acks_s(cluster, _kill, _start) for _ in _times(amounts.kills, "kill -9 of the leader")]
            found |= {"killed-p50": statistics.median(took), "killed-p95": percentile(took, 95)}
            _note(took)
        if "silent-p95" in wanted:
            times = _times(amounts.pauses, "SIGSTOP of the leader")
            took = [without_acks_s(cluster, _pause, _go_on, *IMPATIENT) for _ in times]
            found["silent-p95"] = percentile(took, 95)
            _note(took)
        if "planned" in wanted:
            took = [
                without_acks_s(cluster, _restart, _nothing) for _ in _times(amounts.restarts, "SIGTERM of the leader")
            ]
            found["planned"] = max(took)
            _note(took)
        if "controller" in wanted:
            times = _times(amounts.controllers, "kill -9 of the controller")
            took = [until_created_s(cluster, number) for number in times]
            found["controller"] = statistics.median(took)
            _note(took)
    return found


def without_acks_s(
    cluster: ProcessCluster,
    strike: Callable[[ProcessCluster, int], None],
    mend: Callable[[ProcessCluster, int], None],
    *settings: str,
) -> float:
    """The longest time without an acknowledgement from the moment before `strike` hits the leader of the watched topic
    until acknowledgements come again steadily. Then it is mended, and the cluster whole again."""
    _whole(cluster)
    with acks.watch(cluster.bootstrap, WATCHED, WATCH_PER_S, "message.timeout.ms=120000", *settings) as watch:
        began = time.monotonic()
        eventually(lambda: watch.acked_since(began + 1.0), within_s=60, message="acknowledgements")
        leader = cluster.partition_state(WATCHED).leader
        struck = time.monotonic()
        strike(cluster, leader)
        # What was on its way may still come; afterwards there is silence, and then a stream.
        settled = time.monotonic() + 0.3
        eventually(lambda: _steady(watch, settled), within_s=120, message="acknowledgements again")
        gap = watch.longest_gap_s(struck, time.monotonic())
        mend(cluster, leader)
        _whole(cluster)
    if watch.failed:
        raise RuntimeError(f"{watch.failed} records were refused while broker {leader} was away")
    return gap


def _steady(watch: acks.Watch, since: float) -> bool:
    """Acknowledgements have come through half a second, the last of it just now."""
    recent = [at for at in watch.times[-WATCH_PER_S:] if at > since]
    return bool(recent) and recent[-1] - recent[0] > 0.5 and time.monotonic() - recent[-1] < 0.1


def until_created_s(cluster: ProcessCluster, number: int) -> float:
    """From the controller's end until a topic of two replicas is created: three would want the one that is away."""
    _whole(cluster)
    controller = cluster.controller_id()
    others = ",".join(broker.bootstrap for n, broker in cluster.brokers.items() if n != controller)
    began = time.monotonic()
    cluster.brokers[controller].kill()
    asyncio.run(topic_created(others, f"after-{number}", 2, within_s=120))
    took = time.monotonic() - began
    _start(cluster, controller)
    _whole(cluster)
    return took


def percentile(values: Sequence[float], of_hundred: int) -> float:
    """The smallest value that so many of a hundred do not exceed."""
    return sorted(values)[-(-len(values) * of_hundred // 100) - 1]


def _kill(cluster: ProcessCluster, number: int) -> None:
    cluster.brokers[number].kill()


def _pause(cluster: ProcessCluster, number: int) -> None:
    cluster.brokers[number].pause()


def _go_on(cluster: ProcessCluster, number: int) -> None:
    cluster.brokers[number].resume()


def _start(cluster: ProcessCluster, number: int) -> None:
    cluster.brokers[number].start()


def _restart(cluster: ProcessCluster, number: int) -> None:
    cluster.brokers[number].stop(within_s=60)
    cluster.brokers[number].start()


def _nothing(cluster: ProcessCluster, number: int) -> None:
    """It is back already."""


def _whole(cluster: ProcessCluster) -> None:
    eventually(lambda: cluster.is_healthy(), within_s=HEALS_WITHIN_S, message="the cluster is whole")


def _times(count: int, what: str) -> range:
    commands.append(f"{count} × {what}, pid by pid")
    return range(count)


def _note(took: Sequence[float]) -> None:
    commands[-1] += "\n      " + " ".join(f"{value:.3f}" for value in took) + " s"


SESSIONS: tuple[Session[NewCluster, Amounts], ...] = (
    Session(("start", "memory", "produce", "latency"), 3, load),
    Session(("killed", "silent", "planned", "controller"), 1, faults),
    Session(("10k",), 1, many.partitions),
)
