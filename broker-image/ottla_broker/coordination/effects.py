"""What goes into the group state machine and what comes out of it: requests, answers and writes, as plain values.

A *ticket* stands for one waiting request. The machine never looks inside it; who runs the machine makes it a future.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.coordination.records import GroupMetadata
from ottla_broker.wire.errors import ErrorCode

Ticket = object
Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the member's favourite first


class Now(NamedTuple):
    """One moment on two clocks, both in milliseconds: the event loop's, for deadlines, and the wall's, for what is
    written."""

    ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`member_id` is empty for a member that has none yet; then `unique` (any text that no one else has) makes it one.
    `needs_member_id`: the client understands MEMBER_ID_REQUIRED (v4, KIP-394). `may_skip_assignment`: v9, KIP-814."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    unique: str = ""
    needs_member_id: bool = True
    may_skip_assignment: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    member_id: str
    error: ErrorCode = ErrorCode.none
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes] = field(default_factory=dict)  # member id → assignment; only the leader's counts


@dataclass(frozen=True, slots=True)
class SyncResult:
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """`member_id` is empty when an administrator removes a static member by its instance id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    ticket: Ticket
    result: JoinResult | SyncResult


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """The leader's assignment of this generation is being written; members get it when it is there."""

    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """A static member came back under a new member id into a stable group; `old_*` is what to go back to if the write
    fails."""

    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    may_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class EmptyStored:
    """The group has no members left. Nothing waits for this write: a group that loses it comes back with members that
    time out."""


Then = AssignmentStored | StaticMemberStored | EmptyStored


@dataclass(frozen=True, slots=True)
class Store:
    """Write this, replicated; then tell the group (`classic_group` → `rebalance.stored`)."""

    metadata: GroupMetadata
    then: Then


Effect = Answer | Store
