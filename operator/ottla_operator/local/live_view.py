"""What `ottla up` knows and shows: rows that change, and lines that are said once."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class State(Enum):
    """How a process or topic does. The value is the word that people see."""

    waiting = "waiting"
    starting = "starting"
    ready = "ready"
    running = "running"
    finished = "finished"
    suspended = "suspended"
    retrying = "retrying"
    failed = "failed"
    stopping = "stopping"
    stopped = "stopped"


@dataclass(slots=True)
class BrokerRow:
    """`leads`: partitions; `replicas`: that it holds; `behind`: of them, that are not in sync. None: not known."""

    label: str
    address: str
    state: State = State.waiting
    pid: int | None = None
    note: str = ""
    controller: bool = False
    leads: int | None = None
    replicas: int | None = None
    behind: int | None = None


@dataclass(slots=True)
class TopicRow:
    """`records`: log end minus log start over all partitions, so records that compaction took still count. `lag_records`: of the group that is
    furthest behind, which `lag_group` names."""

    cluster: str
    name: str
    state: State = State.waiting
    partitions: int | None = None
    records: int | None = None
    records_per_second: float = 0.0
    bytes: int | None = None
    lag_records: int | None = None
    lag_group: str = ""
    note: str = ""


@dataclass(slots=True)
class PipelineRow:
    cluster: str
    name: str
    state: State = State.waiting
    rows_in: int = 0
    rows_out: int = 0
    rows_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    note: str = ""


@dataclass(slots=True)
class MirrorRow:
    """`cluster`: the target. `topics`: that are copied. Lag as last seen; None: not known."""

    cluster: str
    name: str
    state: State = State.waiting
    topics: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    note: str = ""


@dataclass(slots=True)
class LoadRow:
    script: str
    state: State = State.waiting
    note: str = ""


@dataclass(slots=True)
class LiveView:
    """`say` prints a line that stays: (text, kind) where kind is info, good, warn or bad. Times are seconds since the command began."""

    say: Callable[[str, str], None]
    began: float = field(default_factory=lambda: process_start())
    brokers: dict[str, BrokerRow] = field(default_factory=dict)
    topics: dict[tuple[str, str], TopicRow] = field(default_factory=dict)
    pipelines: dict[tuple[str, str], PipelineRow] = field(default_factory=dict)
    mirrors: dict[tuple[str, str], MirrorRow] = field(default_factory=dict)
    loads: dict[str, LoadRow] = field(default_factory=dict)
    moving: dict[str, str] = field(default_factory=dict)
    """Cluster → how far its partitions are that move because of brokers that came or go."""
    firsts: dict[str, float] = field(default_factory=dict)

    def first(self, what: str) -> None:
        """Notes when something happened for the first time, and says so."""
        if what not in self.firsts:
            self.firsts[what] = time.clock_gettime(time.CLOCK_MONOTONIC) - self.began
            self.say(f"{what} after {self.firsts[what]:.1f} s", "good")


def process_start() -> float:
    """When this process began, on the monotonic clock: the interpreter's own start counts for a person who waits."""
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    try:
        import os

        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
        age = up - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return now
    return now - age if 0 <= age < 60 else now
