"""Measures one side of mirroring: copy rate, catching up, lag and idle use, for Ottla or for
MirrorMaker 2.
"""

import asyncio
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench import programs
from bench.cluster import acks
from bench.mirror.sides import PARTITIONS, Copier, sum_of_high_watermarks
from bench.runner import Session
from ottla_broker.wire.errors import KafkaError
from tests.clients import librdkafka as rd
from tests.waiting import eventually

KIB = 1024
COPIED_WITHIN_S = 600.0
LEVEL_LAG_S = 0.5  # the copy has caught up when it is behind by at most the records of this time
MANY_TOPICS = 10

RunCopier = Callable[[], AbstractContextManager[Copier]]


@dataclass(frozen=True)
class LoadSize:
    """The size of the load, in records of 1 KiB, seconds (`*_s`) or records per second (`*_per_s`).

    `copied`: records to copy. `behind`: records that the copy has to catch up with, while
    `meanwhile_per_s` are produced. `lag_per_s`: rate at which the lag is measured, for `lag_s`
    after `warm_s`. `partitions`: number of partitions of the idle cluster, which is measured for
    `idle_s`.
    """

    copied: int = 1_500_000
    behind: int = 2_000_000
    meanwhile_per_s: int = 5_000
    lag_per_s: int = 5_000
    warm_s: float = 10.0
    lag_s: float = 20.0
    partitions: int = 1_000
    idle_s: float = 10.0


QUICK = LoadSize(
    copied=60_000, behind=60_000, meanwhile_per_s=500, lag_per_s=500, warm_s=2.0, lag_s=3.0, partitions=60, idle_s=3.0
)


def measure_copying(run_copier: RunCopier, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    found: dict[str, float] = {}
    with run_copier() as copier:
        source = copier.source.bootstrap
        rd.create_topic(source, "bench-flood", PARTITIONS)
        acks.measure_flood(source, "bench-flood", PARTITIONS, KIB, load_size.copied)
        copier.start()
        _wait_until_copied(copier, "bench-flood", load_size.copied // 4)  # warms up
        warm_records, began, cpu_before_s = _copied_records(copier, "bench-flood"), time.monotonic(), copier.cpu_s()
        _wait_until_copied(copier, "bench-flood", load_size.copied)
        megabytes = (load_size.copied - warm_records) * KIB / 1e6
        found["copy-rate"] = megabytes / (time.monotonic() - began)
        found["copy-cpu"] = megabytes / (copier.cpu_s() - cpu_before_s)
        if "catch-up" in selected:
            found["catch-up"] = _catch_up_s(copier, load_size)
        if any(name.startswith("lag") for name in selected):
            rd.create_topic(source, "bench-lag", PARTITIONS)
            _wait_until_copied(copier, "bench-lag", 0)
            lag_s = _measure_lag_s(copier, load_size)
            found |= {"lag-p50": lag_s["p50"] * 1000, "lag-p99": lag_s["p99"] * 1000}
        found["memory"] = copier.added_memory_kib() / 1024
    return found


def _catch_up_s(copier: Copier, load_size: LoadSize) -> float:
    """Seconds from the first record that is copied after a pause until the copy lacks at most the
    records of LEVEL_LAG_S.
    """
    source = copier.source.bootstrap
    copier.stop()
    acks.measure_flood(source, "bench-flood", PARTITIONS, KIB, load_size.behind)
    before = _copied_records(copier, "bench-flood")
    with _produce_meanwhile(source, "bench-flood", load_size.meanwhile_per_s):
        copier.start()
        _wait_until_copied(copier, "bench-flood", before + 1)
        began = time.monotonic()

        def has_caught_up() -> bool:
            missing = asyncio.run(sum_of_high_watermarks(source, "bench-flood", PARTITIONS)) - _copied_records(
                copier, "bench-flood"
            )
            return missing <= load_size.meanwhile_per_s * LEVEL_LAG_S

        eventually(has_caught_up, within_s=COPIED_WITHIN_S, message="the copy has caught up")
        took = time.monotonic() - began
    _wait_until_copied(copier, "bench-flood", asyncio.run(sum_of_high_watermarks(source, "bench-flood", PARTITIONS)))
    return took


@contextmanager
def _produce_meanwhile(bootstrap: str, topic: str, per_s: int) -> Iterator[None]:
    words = ["steady", bootstrap, topic, str(PARTITIONS), str(KIB), str(per_s), str(COPIED_WITHIN_S)]
    command = [programs.compile_program("acks"), *words]
    programs.command_log.append(shlex.join(command) + " &")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(programs.PROGRAM_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def _measure_lag_s(copier: Copier, load_size: LoadSize) -> dict[str, float]:
    source, target = copier.source.bootstrap, copier.target.bootstrap
    load = (PARTITIONS, KIB, load_size.lag_per_s, load_size.warm_s, load_size.lag_s)
    return programs.measure_lag(source, "bench-lag", target, copier.target_topic("bench-lag"), *load)


def measure_idle(run_copier: RunCopier, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    with run_copier() as copier:
        each = load_size.partitions // MANY_TOPICS
        names = [f"bench-many-{number}" for number in range(MANY_TOPICS)]
        for name in names:
            rd.create_topic(copier.source.bootstrap, name, each)
            acks.measure_flood(copier.source.bootstrap, name, each, KIB, 1_000)
        copier.start()
        for name in names:
            _wait_until_copied(copier, name, 1_000, each)
        time.sleep(5)  # lets background work finish
        before, began = copier.cpu_s(), time.monotonic()
        time.sleep(load_size.idle_s)
        return {"idle": (copier.cpu_s() - before) / (time.monotonic() - began) * 100}


def _wait_until_copied(copier: Copier, topic: str, records: int, partitions: int = PARTITIONS) -> None:
    """Returns when `records` records of a topic are readable at the target."""
    eventually(
        lambda: _copied_records(copier, topic, partitions) >= records,
        within_s=COPIED_WITHIN_S,
        message=lambda: f"{_copied_records(copier, topic, partitions)} of {records} records of {topic} are copied",
    )


def _copied_records(copier: Copier, topic: str, partitions: int = PARTITIONS) -> int:
    """The number of a topic's records at the target; −1 while the topic does not exist there."""
    try:
        return asyncio.run(sum_of_high_watermarks(copier.target.bootstrap, copier.target_topic(topic), partitions))
    except KafkaError:
        return -1


SESSIONS: tuple[Session[RunCopier, LoadSize], ...] = (
    Session(("copy", "catch-up", "lag", "memory"), 1, measure_copying),
    Session(("idle",), 1, measure_idle),
)
