"""The register: one small value that names the leader of the metadata log, its epoch and its voters (docs/register.md).

It is kept by a store that is changed only by compare-and-swap. Invariant: an epoch is given to one broker only, and only
to a voter, because each value is written over the one that it was made from. Times decide only when to try.
"""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.metadata.quorum_rules import Voter
from ottla_broker.runtime import uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

NO_LEADER = -1


class RegisterValue(msgspec.Struct, frozen=True):
    """`isr`: the voters; `replicas`: their broker ids; `holder`: the leader, or −1 when it has resigned; `renewed_ms`:
    wall clock of the holder's last renewal; `lease_ms`: how long that is valid."""

    cluster_id: str
    epoch: int
    leader: int
    isr: tuple[Voter, ...]
    replicas: tuple[int, ...]
    holder: int
    renewed_ms: int
    lease_ms: int

    def voter(self, broker: int) -> Voter | None:
        return next((voter for voter in self.isr if voter.broker == broker), None)

    def has_voter(self, me: Voter) -> bool:
        return any(voter.key == me.key for voter in self.isr)

    def with_new_leader(self, me: Voter, now_ms: int, *, lease_ms: int) -> "RegisterValue":
        """`me` leads the next epoch. KafkaError INCONSISTENT_CLUSTER_ID when it is not a voter."""
        if not self.has_voter(me):
            known = ", ".join(f"broker {v.broker} with log directory {uuid_text(v.directory)}" for v in self.isr)
            raise KafkaError(
                ErrorCode.inconsistent_cluster_id,
                f"the voters of cluster {self.cluster_id} are {known}; broker {me.broker} with log directory "
                f"{uuid_text(me.directory)} may lack committed metadata and will not lead; restore that directory, or remove "
                "the register to create a new cluster without its metadata",
            )
        voters = tuple(me if voter.key == me.key else voter for voter in self.isr)
        return replace(
            self,
            epoch=self.epoch + 1,
            leader=me.broker,
            isr=voters,
            holder=me.broker,
            renewed_ms=now_ms,
            lease_ms=lease_ms,
        )

    def with_renewed_lease(self, now_ms: int) -> "RegisterValue":
        return replace(self, holder=self.leader, renewed_ms=now_ms)

    def with_vacant_lead(self, now_ms: int) -> "RegisterValue":
        return replace(self, holder=NO_LEADER, renewed_ms=now_ms)

    def with_voters(self, voters: tuple[Voter, ...], now_ms: int) -> "RegisterValue":
        return replace(self, isr=voters, replicas=tuple(voter.broker for voter in voters), renewed_ms=now_ms)

    def with_announced_leader(self, leader: int, epoch: int, address: str) -> "RegisterValue":
        """The value as far as a broker knows it that received BeginQuorumEpoch before the register's own change."""
        known = self.voter(leader)
        announced = Voter(leader, known.directory if known else UUID(int=0), address)
        voters = tuple(announced if voter is known else voter for voter in self.isr)
        return replace(self, epoch=epoch, leader=leader, holder=leader, isr=voters if known else (*voters, announced))


def initial_value(cluster_id: str, me: Voter, now_ms: int, *, lease_ms: int, epoch: int = 1) -> RegisterValue:
    """The first value of a cluster's register. `epoch`: above every epoch in the metadata log, when a register was lost."""
    return RegisterValue(
        cluster_id=cluster_id,
        epoch=epoch,
        leader=me.broker,
        isr=(me,),
        replicas=(me.broker,),
        holder=me.broker,
        renewed_ms=now_ms,
        lease_ms=lease_ms,
    )


@dataclass(frozen=True, slots=True)
class VersionedValue:
    """A value as read, with the store's version of it. `value` None: the register is empty."""

    value: RegisterValue | None
    version: str


class RegisterError(Exception):
    """The store cannot be reached, or does not hold a register."""


class Conflict(Exception):
    """Another broker changed the register first."""


class Register(Protocol):
    """A store. Every call raises RegisterError when it cannot be reached."""

    async def read(self) -> VersionedValue: ...
    async def swap(self, seen: VersionedValue, new: RegisterValue) -> VersionedValue:
        """Writes `new` if the register's version is still that of `seen`. Conflict otherwise."""
        ...

    async def watch(self, seen: VersionedValue, timeout_s: float) -> VersionedValue:
        """Returns when the register's version differs from `seen`'s, or after `timeout_s`."""
        ...

    async def close(self) -> None: ...
