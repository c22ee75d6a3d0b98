"""Inputs and outputs of a classic group's state machine as plain values: requests, results, and
effects to carry out.

A `PendingRequest` identifies one waiting request. It is opaque to the state machine; the shard uses
a future.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.coordination.records import GroupMetadata
from ottla_broker.wire.errors import ErrorCode

PendingRequest = object
Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the member's preferred one first


class Timestamps(NamedTuple):
    """One moment on two clocks, in milliseconds: the event loop's, for deadlines, and the wall
    clock, for records.
    """

    loop_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`member_id` is empty for a new member, whose id then ends in `unique_suffix`.
    `needs_member_id`: the client supports MEMBER_ID_REQUIRED (v4, KIP-394). `may_skip_assignment`:
    v9, KIP-814."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    unique_suffix: str = ""
    needs_member_id: bool = True
    may_skip_assignment: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupMemberMetadata:
    """A member in the leader's JoinGroup response."""

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
    members: tuple[GroupMemberMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes] = field(default_factory=dict)  # member id → assignment; only the leader sends them


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
class CompleteRequest:
    request: PendingRequest
    result: JoinResult | SyncResult


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """Writes the leader's assignment for this generation, which members get once it is written."""

    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberWrite:
    """Writes a static member that rejoined a stable group under a new member id. The old id and
    what the member had requested under it are restored if the write fails."""

    old_member_id: str
    new_member_id: str
    old_leader: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    may_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class EmptyGroupWrite:
    """Writes a group without members. No request waits for it: without this record the group is
    restored with members that then expire."""


WritePurpose = AssignmentWrite | StaticMemberWrite | EmptyGroupWrite


@dataclass(frozen=True, slots=True)
class WriteGroupMetadata:
    """Write the record, then call `rebalance.on_write_completed`."""

    metadata: GroupMetadata
    purpose: WritePurpose


Effect = CompleteRequest | WriteGroupMetadata
