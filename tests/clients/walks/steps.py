"""One step of a walk: a request whose values may be references to what the broker has told before.

A step says nothing that only one broker knows, so the same one goes to both, and any of the steps before it may be left out: a
reference to what was never told has a value as well (no member id, an id that no topic has, offset 0).
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

WAIT: Final = "wait"  # a step that asks nothing, but lets time go by: `seconds`
Kind = Literal[
    "name",  # of a topic or group, with the walk's prefix
    "id",  # the topic's
    "old id",  # the one it had before it was made anew
    "member",  # (group, slot): the id that this slot was given last
    "generation",  # (group, slot): that this slot joined last
    "session",  # of fetches
    "session epoch",  # the next one
    "sequence",  # (topic, partition, producer): the next one
    "end",  # (topic, partition): where it ends as far as producers were told
]


@dataclass(frozen=True, slots=True)
class Ref:
    kind: Kind
    of: tuple[Any, ...]
    plus: int = 0

    def __repr__(self) -> str:
        shift = f"{self.plus:+}" if self.plus else ""
        return f"<{self.kind} {' '.join(map(str, self.of))}{shift}>"


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch. `faults`: what is done to its bytes, by name (`record_steps.FAULTS`)."""

    values: tuple[bytes | None, ...]
    at_ms: int
    key: bytes | None = b"k"
    producer: int = -1
    epoch: int = -1
    sequence: int | Ref = -1
    compression: int = 0
    fault: str = ""

    def __repr__(self) -> str:
        values = b" ".join((value or b"null")[:6] for value in self.values).decode()
        by = f" by {self.producer}/{self.epoch}/{self.sequence}" if self.producer >= 0 else ""
        odd = f" codec {self.compression}" * bool(self.compression) + f" {self.fault}" * bool(self.fault)
        return f"<batch {values} key {self.key!r} at {self.at_ms}{by}{odd}>"


@dataclass(frozen=True, slots=True)
class Step:
    """`learns`: whose answer it is, e.g. the group and slot that join."""

    api: str
    version: int
    fields: dict[str, Any] = field(hash=False)
    learns: tuple[str, ...] = ()

    @property
    def may_wait(self) -> bool:
        """Whether its answer may be that of other members' requests."""
        return self.api in ("join_group", "sync_group")

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.api} v{self.version} {said}"
