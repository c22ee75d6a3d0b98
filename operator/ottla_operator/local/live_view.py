"""The output of `ottla up`: rows of a table, which change, and messages, which stay."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

MessageKind = Literal["info", "success", "warning", "error"]


class State(Enum):
    """The state of a process, topic, schema, mirror or load. The value is shown to users."""

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
    """`leads`: number of partitions that it leads. `replicas`: number of its replicas, of which
    `out_of_sync` are not in sync. None: unknown.
    """

    label: str
    address: str
    state: State = State.waiting
    pid: int | None = None
    note: str = ""
    is_controller: bool = False
    leads: int | None = None
    replicas: int | None = None
    out_of_sync: int | None = None


@dataclass(slots=True)
class TopicRow:
    """`records`: log end minus log start of all partitions, so records that compaction has removed
    still count. `lag_records`: lag of `lag_group`, the group with the largest lag."""

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
    """`cluster`: the target. `topics`: number of copied topics. `lag_records`, `lag_seconds`: None
    if unknown.
    """

    cluster: str
    name: str
    state: State = State.waiting
    topics: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    note: str = ""


@dataclass(slots=True)
class SchemaRow:
    """`version`, `id`: of the schema; None while it is not registered."""

    cluster: str
    subject: str
    state: State = State.waiting
    version: int | None = None
    id: int | None = None
    compatibility: str = ""
    note: str = ""


@dataclass(slots=True)
class LoadRow:
    script: str
    state: State = State.waiting
    note: str = ""


@dataclass(slots=True)
class LiveView:
    """`say`: prints a message. `began_s`: when the command began, on the monotonic clock. `moving`:
    cluster → progress of its reassignments. `milestones`: event → seconds from the start of the
    command.
    """

    say: Callable[[str, MessageKind], None]
    began_s: float = field(default_factory=lambda: process_start_s())
    brokers: dict[str, BrokerRow] = field(default_factory=dict)
    topics: dict[tuple[str, str], TopicRow] = field(default_factory=dict)
    schemas: dict[tuple[str, str], SchemaRow] = field(default_factory=dict)
    pipelines: dict[tuple[str, str], PipelineRow] = field(default_factory=dict)
    mirrors: dict[tuple[str, str], MirrorRow] = field(default_factory=dict)
    loads: dict[str, LoadRow] = field(default_factory=dict)
    moving: dict[str, str] = field(default_factory=dict)
    milestones: dict[str, float] = field(default_factory=dict)

    def reach(self, milestone: str) -> None:
        """Prints a milestone when it is reached for the first time."""
        if milestone not in self.milestones:
            self.milestones[milestone] = time.clock_gettime(time.CLOCK_MONOTONIC) - self.began_s
            self.say(f"{milestone} after {self.milestones[milestone]:.1f} s", "success")


def process_start_s() -> float:
    """Start time of this process on the monotonic clock, including the interpreter's start. The
    present if the system does not say it, or the process is older than a minute.
    """
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        age_s = uptime_s - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return now
    return now - age_s if 0 <= age_s < 60 else now
