"""One step of a walk: a request whose values may refer to earlier responses of the broker.

A step contains nothing that only one broker knows, so the same step goes to both, and any earlier
step may be left out: an unresolved reference has a value too (no member id, an unknown id, offset
0).
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

WAIT: Final = "wait"  # a step without a request, which waits for `seconds`
INITIALIZE_SHARES: Final = "initialize shares"  # a member joins a share group until it has partitions, and leaves
ReferenceKind = Literal[
    "name",  # of a topic or group, with the walk's prefix
    "id",  # the topic's
    "old id",  # of the topic before it was recreated
    "member",  # (group, slot): the slot's last member id
    "generation",  # (group, slot): the generation that the slot joined last
    "session",  # a fetch session id
    "session epoch",  # the next one
    "sequence",  # (topic, partition, producer): the next one
    "producer id",  # (transactional id,)
    "producer epoch",  # (transactional id,)
    "member epoch",  # (group, slot): of a member of a consumer, streams or share group; 0 before it joins
    "tasks",  # (group, slot, kind): the member's tasks of this kind; partitions of a consumer: kind "owned"
    "share session epoch",  # (group, slot): the next one
    "acquired",  # (group, slot, topic, partition, types, count): acknowledgements of `count` acquired offsets
    "end",  # (topic, partition): the end according to produce responses
]


@dataclass(frozen=True, slots=True)
class Reference:
    kind: ReferenceKind
    key: tuple[Any, ...]
    plus: int = 0

    def __repr__(self) -> str:
        shift = f"{self.plus:+}" if self.plus else ""
        return f"<{self.kind} {' '.join(map(str, self.key))}{shift}>"


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """A record batch. `fault` names what is done to its bytes (`batch_faults.FAULTS`)."""

    values: tuple[bytes | None, ...]
    at_ms: int
    key: bytes | None = b"k"
    producer: int | Reference = -1
    epoch: int | Reference = -1
    sequence: int | Reference = -1
    compression: int = 0
    fault: str = ""
    transactional: bool = False

    def __repr__(self) -> str:
        values = b" ".join((value or b"null")[:6] for value in self.values).decode()
        by = f" by {self.producer}/{self.epoch}/{self.sequence}" if self.producer != -1 else ""
        odd = f" codec {self.compression}" * bool(self.compression) + f" {self.fault}" * bool(self.fault)
        odd += " transactional" * self.transactional
        return f"<batch {values} key {self.key!r} at {self.at_ms}{by}{odd}>"


@dataclass(frozen=True, slots=True)
class Step:
    """A request. `source` says whose response it is, e.g. the group and slot that join. `user`: the
    user who sends it; empty: a super user.
    """

    api: str
    version: int
    fields: dict[str, Any] = field(hash=False)
    source: tuple[str, ...] = ()
    user: str = ""

    @property
    def may_wait(self) -> bool:
        """True if its response may depend on other members' requests."""
        return self.api in ("join_group", "sync_group")

    def __str__(self) -> str:
        message = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        by = f" by {self.user}" if self.user else ""
        return f"{self.api} v{self.version}{by} {message}"
