"""Inputs and outputs of a classic group's state machine as plain values: requests, results, and
effects to carry out.

A `PendingRequest` identifies one waiting request. It is opaque to the state machine.

The values are tuples: a rebalance makes some for each member, and a frozen dataclass takes several
times as long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.coordination.records import GroupMetadata
from ottla_broker.wire.errors import ErrorCode

PendingRequest = object
NO_ASSIGNMENTS: Final[Mapping[str, bytes]] = {}
Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the member's preferred one first


class Timestamps(NamedTuple):
    """One moment on two clocks, in milliseconds: the event loop's, for deadlines, and the wall
    clock, for records.
    """

    loop_ms: int
    wall_ms: int


class JoinRequest(NamedTuple):
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


class GroupMemberMetadata(NamedTuple):
    """A member in the leader's JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    member_id: str
    error: ErrorCode = ErrorCode.none
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[GroupMemberMetadata, ...] = ()


class SyncRequest(NamedTuple):
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes] = NO_ASSIGNMENTS  # member id → assignment; only the leader sends them


class SyncResult(NamedTuple):
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """`member_id` is empty when an administrator removes a static member by its instance id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class CompleteRequest(NamedTuple):
    request: PendingRequest
    result: JoinResult | SyncResult


class AssignmentWrite(NamedTuple):
    """Writes the leader's assignment for this generation, which members get once it is written."""

    generation: int
    assignments: dict[str, bytes]


class StaticMemberWrite(NamedTuple):
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


class WriteGroupMetadata(NamedTuple):
    """Write the record, then call `rebalance.on_write_completed`."""

    metadata: GroupMetadata
    purpose: WritePurpose


Effect = CompleteRequest | WriteGroupMetadata
