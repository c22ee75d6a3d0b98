"""One side through the lines: what is copied, and when it counts."""

import asyncio
import json
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench import programs
from bench.cluster import acks
from bench.mirror.sides import PARTITIONS, Copier, ends
from bench.turns import Session
from ottla_broker.wire.errors import KafkaError
from tests.clients import librdkafka as rd
from tests.waiting import eventually

KIB = 1024
COPIED_WITHIN_S = 600.0
LEVEL_S = 0.5  # of what the producer sends meanwhile
MANY_TOPICS = 10

NewCopier = Callable[[], AbstractContextManager[Copier]]


@dataclass(frozen=True)
class Amounts:
    """Records of 1 KiB, but for `*_s` (seconds) and `*_per_s` (records per second)."""

    copied: int = 1_500_000
    behind: int = 2_000_000
    meanwhile_per_s: int = 5_000
    lag_per_s: int = 5_000
    warm_s: float = 10.0
    lag_s: float = 20.0
    partitions: int = 1_000
    idle_s: float = 10.0


QUICK = Amounts(60_000, 60_000, 500, 500, 2.0, 3.0, 60, 3.0)


def copying(side: NewCopier, wanted: Sequence[str], amounts: Amounts) -> dict[str, float]:
    found: dict[str, float] = {}
    with side() as copier:
        source = copier.source.bootstrap
        rd.create(source, "bench-flood", PARTITIONS)
        acks.flood(source, "bench-flood", PARTITIONS, KIB, amounts.copied)
        copier.start()
        _copied(copier, "bench-flood", amounts.copied // 4)  # warm
        already, began, before = _copies(copier, "bench-flood"), time.monotonic(), copier.cpu_s()
        _copied(copier, "bench-flood", amounts.copied)
        megabytes = (amounts.copied - already) * KIB / 1e6
        found["copy-rate"] = megabytes / (time.monotonic() - began)
        found["copy-cpu"] = megabytes / (copier.cpu_s() - before)
        if "catch-up" in wanted:
            found["catch-up"] = _catch_up_s(copier, amounts)
        if any(name.startswith("lag") for name in wanted):
            rd.create(source, "bench-lag", PARTITIONS)
            _copied(copier, "bench-lag", 0)
            took = _lag(copier, amounts)
            found |= {"lag-p50": took["p50"] * 1000, "lag-p99": took["p99"] * 1000}
        found["memory"] = copier.memory_kib() / 1024
    return found


def _catch_up_s(copier: Copier, amounts: Amounts) -> float:
    """From the first record that is copied again until no more are missing than came in half a second."""
    source = copier.source.bootstrap
    copier.stop()
    acks.flood(source, "bench-flood", PARTITIONS, KIB, amounts.behind)
    before = _copies(copier, "bench-flood")
    with _producing(source, "bench-flood", amounts.meanwhile_per_s):
        copier.start()
        _copied(copier, "bench-flood", before + 1)
        began = time.monotonic()

        def level() -> bool:
            missing = asyncio.run(ends(source, "bench-flood", PARTITIONS)) - _copies(copier, "bench-flood")
            return missing <= amounts.meanwhile_per_s * LEVEL_S

        eventually(level, within_s=COPIED_WITHIN_S, message="the copy is level")
        took = time.monotonic() - began
    _copied(copier, "bench-flood", asyncio.run(ends(source, "bench-flood", PARTITIONS)))
    return took


@contextmanager
def _producing(bootstrap: str, topic: str, per_s: int) -> Iterator[None]:
    words = ["steady", bootstrap, topic, str(PARTITIONS), str(KIB), str(per_s), str(COPIED_WITHIN_S)]
    command = [programs.compiled("acks"), *words]
    programs.commands.append(shlex.join(command) + " &")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(programs.PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def _lag(copier: Copier, amounts: Amounts) -> dict[str, float]:
    words = [copier.source.bootstrap, "bench-lag", copier.target.bootstrap, copier.named("bench-lag")]
    words += [str(part) for part in (PARTITIONS, KIB, amounts.lag_per_s, amounts.warm_s, amounts.lag_s)]
    said: dict[str, float] = json.loads(programs.run([programs.compiled("lag"), *words]))
    return said


def idle(side: NewCopier, wanted: Sequence[str], amounts: Amounts) -> dict[str, float]:
    with side() as copier:
        each = amounts.partitions // MANY_TOPICS
        names = [f"bench-many-{number}" for number in range(MANY_TOPICS)]
        for name in names:
            rd.create(copier.source.bootstrap, name, each)
            acks.flood(copier.source.bootstrap, name, each, KIB, 1_000)
        copier.start()
        for name in names:
            _copied(copier, name, 1_000, each)
        time.sleep(5)  # whatever a start leaves to be done comes to its end
        before, began = copier.cpu_s(), time.monotonic()
        time.sleep(amounts.idle_s)
        return {"idle": (copier.cpu_s() - before) / (time.monotonic() - began) * 100}


def _copied(copier: Copier, topic: str, records: int, partitions: int = PARTITIONS) -> None:
    """Returns when so many of a topic's records can be read on the target."""
    eventually(
        lambda: _copies(copier, topic, partitions) >= records,
        within_s=COPIED_WITHIN_S,
        message=lambda: f"{_copies(copier, topic, partitions)} of {records} records of {topic} are copied",
    )


def _copies(copier: Copier, topic: str, partitions: int = PARTITIONS) -> int:
    """−1 while the topic is not on the target."""
    try:
        return asyncio.run(ends(copier.target.bootstrap, copier.named(topic), partitions))
    except KafkaError:
        return -1


SESSIONS: tuple[Session[NewCopier, Amounts], ...] = (
    Session(("copy", "catch-up", "lag", "memory"), 1, copying),
    Session(("idle",), 1, idle),
)
