"""A consumer group of the classic protocol: its members and its state. No I/O, no clock, no
randomness.

State transitions (KIP-62, KIP-134, KIP-345):

    Empty                a member joins                               → PreparingRebalance
    PreparingRebalance   all members joined, or the timeout expired   → CompletingRebalance
    PreparingRebalance   the same, without members                    → Empty
    CompletingRebalance  the leader's assignment is stored            → Stable
    CompletingRebalance  a member joins, leaves, expires or changes   → PreparingRebalance
    Stable               the same                                     → PreparingRebalance
    any                  the group is deleted, or its partition moves → Dead

Invariants: `leader` is a member whenever there are members; `waiting_joins` counts the members
whose JoinGroup waits; `protocol_support` counts the members that support each protocol; a static
instance id maps to exactly one member. `classic_membership` and `classic_generations` change the
group and add to `effects`, which `ClassicGroupRequests` runs.
"""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ottla_broker.coordination.consumer_protocol import read_subscribed_topics
from ottla_broker.coordination.effects import (
    CompleteRequest,
    Effect,
    GroupMemberMetadata,
    JoinResult,
    PendingRequest,
    Protocols,
    SyncResult,
    Timestamps,
    WriteGroupMetadata,
    WritePurpose,
)
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.group_type import CLASSIC
from ottla_broker.coordination.records import GroupMetadata, MemberMetadata
from ottla_broker.wire.errors import ErrorCode, KafkaError

CONSUMER_PROTOCOL = "consumer"


class GroupState(StrEnum):
    """The names in responses of ListGroups and DescribeGroups."""

    empty = "Empty"
    preparing = "PreparingRebalance"
    completing = "CompletingRebalance"
    stable = "Stable"
    dead = "Dead"


@dataclass(slots=True, eq=False)
class GroupMember:
    """`session_deadline_ms`: when the member expires unless it sends a request (loop time); None
    while it is not checked."""

    id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    join_request: PendingRequest | None = None
    sync_request: PendingRequest | None = None
    is_new: bool = False  # never got a response to a JoinGroup, so it cannot send heartbeats
    session_deadline_ms: int | None = None

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def preferred_protocol(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_awaiting_response(self) -> bool:
        """True if the member's session cannot expire, because it waits for a response. A new member
        could wait forever, so its session does expire."""
        return not self.is_new and (self.join_request is not None or self.sync_request is not None)


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """`next_deadline_ms`: no deadline of this group is earlier (loop time); None without
    deadlines.
    """

    id: str
    config: GroupCoordinatorConfig = field(default_factory=GroupCoordinatorConfig)
    state: GroupState = GroupState.empty
    previous_state: GroupState = GroupState.dead
    state_since_ms: int = -1  # wall clock; −1: unknown
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # group instance id → member id
    pending_joins: dict[str, int] = field(default_factory=dict)  # member ids handed out (MEMBER_ID_REQUIRED) → deadline
    # Members of this generation that did not sync yet, in order.
    pending_syncs: dict[str, None] = field(default_factory=dict)
    subscribed_topics: frozenset[str] | None = None  # None if unknown: not parsed, or of another protocol type
    waiting_joins: int = 0
    protocol_support: Counter[str] = field(default_factory=Counter)
    has_new_members: bool = False  # a member joined during the initial rebalance delay
    join_deadline_ms: int | None = None
    initial_delay_remaining_ms: int | None = None  # set while `join_deadline_ms` is the initial rebalance's delay
    sync_deadline_ms: int | None = None
    next_deadline_ms: int | None = None
    has_records: bool = False  # its metadata was written, so deleting it takes a tombstone
    effects: list[Effect] = field(default_factory=list)

    # -- queries -----------------------------------------------------------------------------------

    @property
    def type(self) -> str:
        return CLASSIC

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.empty

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def have_all_members_joined(self) -> bool:
        return len(self.members) == self.waiting_joins and not self.pending_joins

    @property
    def can_rebalance(self) -> bool:
        return self.state in (GroupState.empty, GroupState.completing, GroupState.stable)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        """True for every topic if the subscriptions of a group of consumers are unknown."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """True if a member with these protocols can be in the group."""
        if self.state is GroupState.empty:
            return bool(protocol_type) and any(True for _ in names)
        return self.protocol_type == protocol_type and any(
            self.protocol_support[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Selects the protocol with the most votes. Each member votes for its preferred protocol
        among those that all support; the earliest vote breaks a tie.
        """
        candidates = {name for name, count in self.protocol_support.items() if count == len(self.members)}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.preferred_protocol(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def check_member(self, member_id: str, group_instance_id: str | None) -> GroupMember:
        """Returns the member. Raises UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID when another member has
        taken over the instance id.
        """
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.unknown_member_id, f"no member with instance id {group_instance_id!r}")
            if holder != member_id:
                raise KafkaError(ErrorCode.fenced_instance_id, f"{group_instance_id!r} is now member {holder!r}")
        if (member := self.members.get(member_id)) is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"no member {member_id!r} in group {self.id!r}")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.illegal_generation, f"generation {generation}; the group is at {self.generation}"
            )

    def check_commit(self, member_id: str, group_instance_id: str | None, generation: int) -> None:
        """Raises KafkaError unless this member may commit offsets. Consumers that assign partitions
        themselves commit without a generation, which is allowed while the group is empty."""
        if self.state is GroupState.dead:
            raise KafkaError(ErrorCode.coordinator_not_available)
        if generation < 0 and self.state is GroupState.empty:
            return
        if generation < 0 and not member_id and group_instance_id is None:
            raise KafkaError(ErrorCode.unknown_member_id, "the group has members, and the commit names none of them")
        self.check_member(member_id, group_instance_id)
        self.check_generation(generation)
        if self.state is GroupState.completing:
            raise KafkaError(ErrorCode.rebalance_in_progress, "the generation has no assignment yet")

    def member_metadata(self) -> tuple[GroupMemberMetadata, ...]:
        return tuple(
            GroupMemberMetadata(member.id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def to_record(self, assignments: dict[str, bytes]) -> GroupMetadata:
        return GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader,
            self.state_since_ms,
            tuple(
                MemberMetadata(
                    member.id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol_name),
                    assignments.get(member.id, b""),
                )
                for member in self.members.values()
            ),
        )

    # -- changes, each of which keeps the invariants -----------------------------------------------

    def transition_to(self, state: GroupState, now: Timestamps) -> None:
        self.previous_state, self.state, self.state_since_ms = self.state, state, now.wall_ms

    def add_member(self, member: GroupMember) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self.protocol_support.update(name for name, _ in member.protocols)
        self.waiting_joins += member.join_request is not None
        self.pending_joins.pop(member.id, None)

    def remove_member(self, member_id: str) -> None:
        """Removes a member, pending or not, whose waiting requests were completed before."""
        if (member := self.members.pop(member_id, None)) is not None:
            self._remove_protocols(member)
            self.waiting_joins -= member.join_request is not None
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def update_member(
        self, member: GroupMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        if protocols != member.protocols:
            self._remove_protocols(member)
            member.protocols = protocols
            self.protocol_support.update(name for name, _ in protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static_member(self, old_id: str, new_id: str) -> GroupMember:
        """Gives the static member a new id. Requests that wait under the old id are fenced."""
        member = self.members[old_id]
        self.complete_join(member, JoinResult(old_id, ErrorCode.fenced_instance_id))
        self.complete_sync(member, SyncResult(ErrorCode.fenced_instance_id))
        # Members are in the order in which they joined; this one keeps its place.
        self.members = {new_id if id == old_id else id: member for id, member in self.members.items()}
        member.id = new_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            del self.pending_syncs[old_id]
        return member

    def _remove_protocols(self, member: GroupMember) -> None:
        for name, _ in member.protocols:
            self.protocol_support[name] -= 1
            if not self.protocol_support[name]:
                del self.protocol_support[name]

    def keep_join_request(self, member: GroupMember, pending: PendingRequest) -> None:
        """Keeps a JoinGroup until the next generation. A second one of the same member replaces the
        first, which the client has abandoned.
        """
        if member.join_request is None:
            self.waiting_joins += 1
        else:
            self.effects.append(
                CompleteRequest(member.join_request, JoinResult(member.id, ErrorCode.rebalance_in_progress))
            )
        member.join_request = pending

    def complete_join(self, member: GroupMember, result: JoinResult) -> None:
        """Does nothing unless a JoinGroup request of the member waits."""
        if member.join_request is not None:
            self.effects.append(CompleteRequest(member.join_request, result))
            member.join_request = None
            self.waiting_joins -= 1

    def complete_sync(self, member: GroupMember, result: SyncResult) -> bool:
        """Returns False if no SyncGroup request of the member waits."""
        if member.sync_request is None:
            return False
        self.effects.append(CompleteRequest(member.sync_request, result))
        member.sync_request = None
        return True

    def schedule_session_timeout(self, member: GroupMember, now: Timestamps, within_ms: int | None = None) -> None:
        """Sets the time at which the member expires unless it sends a request: after its session
        timeout, or `within_ms`.
        """
        member.session_deadline_ms = now.loop_ms + (member.session_timeout_ms if within_ms is None else within_ms)
        self.lower_next_deadline(member.session_deadline_ms)

    def lower_next_deadline(self, deadline_ms: int) -> None:
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    def write_assignments(self, assignments: dict[str, bytes], purpose: WritePurpose) -> None:
        self.has_records = True
        self.effects.append(WriteGroupMetadata(self.to_record(assignments), purpose))

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        # Most members of a large group have the same subscription.
        for subscription in {member.metadata(self.protocol_name) for member in self.members.values()}:
            try:
                topics.update(read_subscribed_topics(subscription))
            except (struct.error, UnicodeDecodeError, IndexError):
                return None  # not a ConsumerProtocolSubscription, although the protocol type says so
        return frozenset(topics)


def restore_group(group_id: str, config: GroupCoordinatorConfig, record: GroupMetadata) -> ClassicGroup:
    """Restores the group from its record: Stable with members, Empty without. Deadlines are set
    when the whole partition is loaded.
    """
    group = ClassicGroup(
        group_id,
        config,
        state=GroupState.stable if record.members else GroupState.empty,
        state_since_ms=record.state_since_ms,
        generation=record.generation,
        protocol_type=record.protocol_type or None,
        protocol_name=record.protocol,
        leader=record.leader,
        has_records=True,
    )
    for member in record.members:
        group.add_member(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms if member.rebalance_timeout_ms < 0 else member.rebalance_timeout_ms,
                member.session_timeout_ms,
                record.protocol_type,
                ((record.protocol or "", member.subscription),),
                member.assignment,
            )
        )
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
