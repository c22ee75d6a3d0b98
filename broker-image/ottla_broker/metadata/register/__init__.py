"""The register: the one small value that a consensus system keeps for a cluster, changed only by compare-and-swap.

It says which broker leads the metadata log, in which epoch, and who may be next (design decisions 5 and 6). Liveness comes from the
lease's times; safety only from the compare-and-swap and the epoch.
"""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import msgspec

ReplicaKey = tuple[int, UUID]


class Voter(msgspec.Struct, frozen=True):
    """A broker that keeps the metadata log, together with the id of its log directory: a wiped disk is another member.

    `address`: host:port where other brokers reach it (an IPv6 host in brackets); it may change while the member stays the same.
    """

    broker: int
    directory: UUID
    address: str = ""

    @property
    def key(self) -> ReplicaKey:
        """Who it is, wherever it is."""
        return self.broker, self.directory


class RegisterValue(msgspec.Struct, frozen=True):
    """`isr`: the members, whose majority commits; `holder`: the leader while it wants to lead, −1 when it has resigned; `renewed_ms`: wall clock of the holder's last renewal; `lease_ms`: how long it is good for. Times only tell when to try."""

    cluster_id: str
    epoch: int
    leader: int
    isr: tuple[Voter, ...]
    replicas: tuple[int, ...]
    holder: int
    renewed_ms: int
    lease_ms: int


@dataclass(frozen=True, slots=True)
class VersionedValue:
    """A value as read, with the store's version of it; `value` None: nothing has been written yet."""

    value: RegisterValue | None
    version: str


class RegisterError(Exception):
    """The register cannot be reached, or is not what it should be; a sentence for people."""


class Conflict(Exception):
    """Somebody else changed the register first: read again, think again."""


class Register(Protocol):
    """Every call raises RegisterError when the store cannot be reached."""

    async def read(self) -> VersionedValue: ...
    async def swap(self, seen: VersionedValue, new: RegisterValue) -> VersionedValue:
        """Writes `new` if the register still is what was seen, and returns it as seen; raises Conflict otherwise."""
        ...

    async def watch(self, seen: VersionedValue, timeout_s: float) -> VersionedValue:
        """Returns as soon as the register's version is another than `seen`'s, or after `timeout_s` as it then is."""
        ...

    async def close(self) -> None: ...
