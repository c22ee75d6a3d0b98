"""Inputs and outputs of a classic group's state machine as plain values: requests, results, and
effects to carry out.

A `PendingRequest` identifies one waiting request. It is opaque to the state machine.

A rebalance makes several requests, results and effects for each member. Their classes are plain
ones with an `__init__` of their own, because compiled code makes such objects much faster than
named tuples. Only the code that makes an object changes it, except that the coordinator sets
`JoinRequest.unique_suffix`.
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


class JoinRequest:
    """`member_id` is empty for a new member, whose id then ends in `unique_suffix`, which the
    coordinator sets. `needs_member_id`: the client supports MEMBER_ID_REQUIRED (v4, KIP-394).
    `may_skip_assignment`: the client supports SkipAssignment (v9, KIP-814)."""

    __slots__ = (
        "client_host",
        "client_id",
        "group_instance_id",
        "may_skip_assignment",
        "member_id",
        "needs_member_id",
        "protocol_type",
        "protocols",
        "reason",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "unique_suffix",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        unique_suffix: str = "",
        needs_member_id: bool = True,
        may_skip_assignment: bool = True,
        reason: str = "",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.unique_suffix = unique_suffix
        self.needs_member_id = needs_member_id
        self.may_skip_assignment = may_skip_assignment
        self.reason = reason


class GroupMemberMetadata:
    """A member in the leader's JoinGroup response."""

    __slots__ = ("group_instance_id", "member_id", "metadata")

    def __init__(self, member_id: str, group_instance_id: str | None, metadata: bytes) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.metadata = metadata


class JoinResult:
    __slots__ = (
        "error",
        "generation",
        "leader",
        "member_id",
        "members",
        "protocol_name",
        "protocol_type",
        "skip_assignment",
    )

    def __init__(
        self,
        member_id: str,
        error: ErrorCode = ErrorCode.none,
        generation: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader: str = "",
        skip_assignment: bool = False,
        members: tuple[GroupMemberMetadata, ...] = (),
    ) -> None:
        self.member_id = member_id
        self.error = error
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.skip_assignment = skip_assignment
        self.members = members


class SyncRequest:
    """`assignments`: member id → assignment; only the leader sends them."""

    __slots__ = ("assignments", "generation", "group_instance_id", "member_id", "protocol_name", "protocol_type")

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes] = NO_ASSIGNMENTS,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignments = assignments


class SyncResult:
    __slots__ = ("assignment", "error", "protocol_name", "protocol_type")

    def __init__(
        self,
        error: ErrorCode = ErrorCode.none,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.error = error
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignment = assignment


class LeavingMember(NamedTuple):
    """`member_id` is empty when an administrator removes a static member by its instance id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class CompleteRequest:
    __slots__ = ("request", "result")

    def __init__(self, request: PendingRequest, result: JoinResult | SyncResult) -> None:
        self.request = request
        self.result = result


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
    """Writes a group without members. A LeaveGroup waits for this write but succeeds even if it
    fails: without this record the group is restored with members that then expire."""


WritePurpose = AssignmentWrite | StaticMemberWrite | EmptyGroupWrite


class WriteGroupMetadata(NamedTuple):
    """Writes the record, and then has `classic_generations.on_write_completed` called with
    `purpose`.
    """

    metadata: GroupMetadata
    purpose: WritePurpose


Effect = CompleteRequest | WriteGroupMetadata
