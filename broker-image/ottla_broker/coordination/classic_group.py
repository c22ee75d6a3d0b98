"""A group of the classic protocol: its members, its state, and the questions one can ask of them. No I/O, no clock,
no chance.

States and the way between them (KIP-62, KIP-134, KIP-345):

    Empty                somebody joins                               → PreparingRebalance
    PreparingRebalance   everybody joined, or time is up              → CompletingRebalance, or Empty if nobody is left
    CompletingRebalance  the leader's assignment is stored            → Stable
    the last two         a member joins, leaves, dies or changes      → PreparingRebalance
    any                  the group is deleted or moves elsewhere      → Dead

Invariants: `leader` is a member whenever there are members; `joining` counts the members whose JoinGroup waits;
`supported` counts, per protocol, the members that support it; a static instance id maps to exactly one member. What
moves the group lives in `rebalance`, `join`, `sync` and `leave`; each adds to `effects`, and whoever runs the group
takes them with `take_effects`.
"""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ottla_broker.coordination.effects import (
    Answer,
    Effect,
    JoinedMember,
    JoinResult,
    Now,
    Protocols,
    Store,
    SyncResult,
    Then,
    Ticket,
)
from ottla_broker.coordination.records import GroupMetadata, MemberMetadata
from ottla_broker.wire.errors import ErrorCode, KafkaError

CONSUMER_PROTOCOL = "consumer"


class GroupState(StrEnum):
    """Names as ListGroups and DescribeGroups show them."""

    empty = "Empty"
    preparing = "PreparingRebalance"
    completing = "CompletingRebalance"
    stable = "Stable"
    dead = "Dead"


@dataclass(slots=True, eq=False)
class Member:
    """`due_ms`: when the member is dead unless it is heard of (loop time); None while nothing is expected of it."""

    id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    joining: Ticket | None = None
    syncing: Ticket | None = None
    is_new: bool = False  # never got an answer to a JoinGroup, so it cannot send heartbeats
    due_ms: int | None = None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_waiting(self) -> bool:
        """A member that waits for our answer owes no heartbeat. One that is new could wait for ever, so it does."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """`wake_ms`: no deadline of this group lies before it (loop time); None when there is none at all."""

    id: str
    state: GroupState = GroupState.empty
    previous: GroupState = GroupState.dead
    state_since_ms: int = -1  # wall clock; −1: not known
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # group instance id → member id
    pending_joins: dict[str, int] = field(default_factory=dict)  # member ids given out (MEMBER_ID_REQUIRED) → deadline
    pending_syncs: dict[str, None] = field(
        default_factory=dict
    )  # members of this generation that did not sync yet, in order
    subscribed: frozenset[str] | None = None  # topics; None when the coordinator cannot know
    joining: int = 0
    supported: Counter[str] = field(default_factory=Counter)
    newcomers: bool = False  # somebody joined while the initial rebalance waits
    join_due_ms: int | None = None
    initial_remaining_ms: int | None = None  # set while `join_due_ms` is the initial rebalance's delay
    sync_due_ms: int | None = None
    wake_ms: int | None = None
    is_written: bool = False  # its metadata was written, so that its end needs a tombstone
    effects: list[Effect] = field(default_factory=list)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.joining and not self.pending_joins

    @property
    def can_rebalance(self) -> bool:
        return self.state in (GroupState.empty, GroupState.completing, GroupState.stable)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols could be in the group."""
        if self.state is GroupState.empty:
            return bool(protocol_type) and any(True for _ in names)
        return self.protocol_type == protocol_type and any(self.supported[name] == len(self.members) for name in names)

    def choose_protocol(self) -> str:
        """Every member votes for its favourite among those that all support; the earliest vote breaks a tie."""
        candidates = {name for name, count in self.supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member took the instance id over."""
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
        """Whether these may commit offsets. Consumers that manage their partitions themselves come without a
        generation, and may while the group is empty."""
        if self.state is GroupState.dead:
            raise KafkaError(ErrorCode.coordinator_not_available)
        if generation < 0 and self.state is GroupState.empty:
            return
        if generation < 0 and not member_id and group_instance_id is None:
            raise KafkaError(
                ErrorCode.unknown_member_id, "the group has members, and the commit comes from none of them"
            )
        self.check_member(member_id, group_instance_id)
        self.check_generation(generation)
        if self.state is GroupState.completing:
            raise KafkaError(ErrorCode.rebalance_in_progress, "the generation has no assignment yet")

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def as_record(self, assignments: dict[str, bytes]) -> GroupMetadata:
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

    # -- small changes, each of which keeps the invariants -----------------------------------------

    def move_to(self, state: GroupState, now: Now) -> None:
        self.previous, self.state, self.state_since_ms = self.state, state, now.wall_ms

    def add(self, member: Member) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self.supported.update(name for name, _ in member.protocols)
        self.joining += member.joining is not None
        self.pending_joins.pop(member.id, None)

    def remove(self, member_id: str) -> None:
        """Forgets a member, pending or not. Its waiting requests are to be answered before."""
        if (member := self.members.pop(member_id, None)) is not None:
            self._forget_protocols(member)
            self.joining -= member.joining is not None
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def change(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self.supported.update(name for name, _ in protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def rename_static(self, old_id: str, new_id: str) -> Member:
        """The instance comes back as another member; whoever still waits under the old id is fenced."""
        member = self.members[old_id]
        self.answer_join(member, JoinResult(old_id, ErrorCode.fenced_instance_id))
        self.answer_sync(member, SyncResult(ErrorCode.fenced_instance_id))
        # The order of members is the order in which they came; a renamed one keeps its place.
        self.members = {new_id if id == old_id else id: member for id, member in self.members.items()}
        member.id = new_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            del self.pending_syncs[old_id]
        return member

    def _forget_protocols(self, member: Member) -> None:
        for name, _ in member.protocols:
            self.supported[name] -= 1
            if not self.supported[name]:
                del self.supported[name]

    def wait_for_join(self, member: Member, ticket: Ticket) -> None:
        """A second JoinGroup of the same member takes the first one's place; the client gave that one up."""
        if member.joining is None:
            self.joining += 1
        else:
            self.effects.append(Answer(member.joining, JoinResult(member.id, ErrorCode.rebalance_in_progress)))
        member.joining = ticket

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        if member.joining is None:
            return False
        self.effects.append(Answer(member.joining, result))
        member.joining = None
        self.joining -= 1
        return True

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        if member.syncing is None:
            return False
        self.effects.append(Answer(member.syncing, result))
        member.syncing = None
        return True

    def expect(self, member: Member, now: Now, within_ms: int | None = None) -> None:
        """The member is dead unless it is heard of within its session timeout (or `within_ms`)."""
        member.due_ms = now.ms + (member.session_timeout_ms if within_ms is None else within_ms)
        self.wake_by(member.due_ms)

    def wake_by(self, due_ms: int) -> None:
        if self.wake_ms is None or due_ms < self.wake_ms:
            self.wake_ms = due_ms

    def store(self, assignments: dict[str, bytes], then: Then) -> None:
        self.is_written = True
        self.effects.append(Store(self.as_record(assignments), then))

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def compute_subscribed(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(subscribed_topics(member.metadata(self.protocol_name)))
            except (struct.error, UnicodeDecodeError, IndexError):
                return None  # a protocol that only calls itself "consumer"
        return frozenset(topics)


def subscribed_topics(subscription: bytes) -> list[str]:
    """The topics of a ConsumerProtocolSubscription: version i16, then what version 0 holds and every later one begins
    with. struct.error, UnicodeDecodeError or IndexError when it is none."""
    (count,) = struct.unpack_from(">i", subscription, 2)
    at, topics = 6, []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", subscription, at)
        at += 2 + length
        if length < 0 or at > len(subscription):
            raise IndexError(at)
        topics.append(subscription[at - length : at].decode())
    return topics


def restored(group_id: str, record: GroupMetadata) -> ClassicGroup:
    """The group as its record tells it: Stable with members, Empty without. Deadlines are set when the whole
    partition is loaded."""
    group = ClassicGroup(
        group_id,
        state=GroupState.stable if record.members else GroupState.empty,
        state_since_ms=record.state_since_ms,
        generation=record.generation,
        protocol_type=record.protocol_type or None,
        protocol_name=record.protocol,
        leader=record.leader,
        is_written=True,
    )
    for member in record.members:
        group.add(
            Member(
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
    group.subscribed = group.compute_subscribed()
    return group
