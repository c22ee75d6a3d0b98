"""A consumer group (KIP-848): its members and assignments, rebuilt from its records. No I/O, no
clock.

The records are the state: an operation creates records and applies each to the group (`apply`), and
the load of a partition applies the same records. So a new coordinator gets the same group as the
former one.

    group epoch        grows when members, subscriptions or subscribed topics change
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that a member has reached

A member reaches the assignment epoch once it has given up everything that its target lacks
(`reconciliation`). Invariant: `owners` has at most one member for a partition. A member owns a
partition from its assignment until the member reports that it has given the partition up, leaves or
is fenced.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final, TypeVar

from ottla_broker.coordination.assignors import NO_PARTITIONS, Assignment, TopicIdPartition
from ottla_broker.coordination.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupRecordKey,
    ConsumerGroupRecordValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupEpochValue,
    PartitionMetadataKey,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentEpochKey,
    TargetAssignmentEpochValue,
    TargetAssignmentKey,
    TargetAssignmentValue,
)
from ottla_broker.coordination.consumer_member import (
    LEAVING_EPOCH,
    MEMBER_EPOCHS_SINCE,
    ConsumerMember,
    MemberDeadlines,
    MemberState,
    check_member_epoch,
    from_topic_partitions,
    tracked_parts,
)
from ottla_broker.coordination.group_type import CONSUMER
from ottla_broker.coordination.subscription_counts import SubscriptionCounts, TopicSubscription
from ottla_broker.coordination.uniform_balance import UniformBalance
from ottla_broker.wire.errors import ErrorCode, KafkaError

ValueT = TypeVar("ValueT")
SINGLE_FIELDS: Final = (
    "epoch",
    "metadata_hash",
    "assignment_epoch",
    "has_partition_metadata",
    "is_dead",
    "next_deadline_ms",
    "assigned_ms",
    "metadata_version",
    "regex_metadata_version",
    "regex_resolved_ms",
)
"""Fields of a ConsumerGroup that are neither of members nor of regular expressions."""
read_single_fields: Final = attrgetter(*SINGLE_FIELDS)


class ConsumerGroupState(StrEnum):
    """The names in responses of ListGroups and ConsumerGroupDescribe."""

    empty = "Empty"
    assigning = "Assigning"
    reconciling = "Reconciling"
    stable = "Stable"
    dead = "Dead"


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """`metadata_version`, `regex_metadata_version`: of the metadata for which the topics and the
    regular expressions of the group were evaluated last; −1 after loading, so that the next
    heartbeat evaluates them. `regex_resolved_ms`: when all regular expressions were evaluated last.
    `assigned_ms`: loop time of the last assignment. `subscriptions` and `balance` follow from
    members and targets. `balance`: None until the uniform assignor has computed an assignment of
    members with equal subscriptions.
    """

    id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # group instance id → member id
    targets: dict[str, Assignment] = field(default_factory=dict)
    regular_expressions: dict[str, RegularExpressionValue] = field(default_factory=dict)
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    has_partition_metadata: bool = False  # a record of Kafka before 4.1, to be removed
    is_dead: bool = False
    subscriptions: SubscriptionCounts = field(default_factory=SubscriptionCounts)
    balance: UniformBalance | None = None
    deadlines: dict[str, MemberDeadlines] = field(default_factory=dict)
    next_deadline_ms: int | None = None
    assigned_ms: int | None = None
    metadata_version: int = -1
    regex_metadata_version: int = -1
    regex_resolved_ms: int = -1  # wall clock

    # -- queries -----------------------------------------------------------------------------------

    @property
    def type(self) -> str:
        return CONSUMER

    @property
    def protocol_type(self) -> str:
        return CONSUMER

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.dead
        if not self.members:
            return ConsumerGroupState.empty
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.assigning
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.stable
        return ConsumerGroupState.reconciling

    @property
    def is_empty(self) -> bool:
        return not self.members

    def find_member(self, member_id: str) -> ConsumerMember:
        """Raises UNKNOWN_MEMBER_ID."""
        if (member := self.members.get(member_id)) is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.id}.")
        return member

    def find_static_member(self, member_id: str, group_instance_id: str) -> ConsumerMember:
        """The holder of the instance id. Raises UNKNOWN_MEMBER_ID without one, FENCED_INSTANCE_ID
        when it has another member id."""
        if (holder := self.static_members.get(group_instance_id)) is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {group_instance_id} is unknown.")
        if holder != member_id:
            raise KafkaError(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {group_instance_id} was fenced by member {holder}.",
            )
        return self.members[holder]

    def topics_of_subscription(self, subscription: TopicSubscription) -> set[str]:
        """Names, of topics that need not exist."""
        names, expression = subscription
        found = self.regular_expressions.get(expression) if expression else None
        return {*names, *(() if found is None else found.topics)}

    def subscribed_topics(self) -> set[str]:
        names = self.subscriptions.topic_names
        for found in self.regular_expressions.values():
            names.update(found.topics)
        return names

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics()

    def check_commit(self, member_id: str, member_epoch: int, version: int) -> None:
        """Raises KafkaError unless this member may commit offsets with this version of
        OffsetCommit. Administrators commit without a member while the group is empty."""
        if self.is_dead:
            raise KafkaError(ErrorCode.coordinator_not_available)
        if member_epoch < 0 and self.is_empty:
            return
        member = self.find_member(member_id)
        if member.classic is None and version < MEMBER_EPOCHS_SINCE:
            raise KafkaError(
                ErrorCode.unsupported_version,
                "OffsetCommit version 9 or above must be used by members using the modern group protocol",
            )
        check_member_epoch(member, member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError unless this member may fetch the offsets; every client may fetch them
        without a member id."""
        if member_id is None and member_epoch < 0:
            return
        check_member_epoch(self.find_member(member_id or ""), member_epoch)

    # -- changes -----------------------------------------------------------------------------------

    def apply(self, key: ConsumerGroupRecordKey, value: ConsumerGroupRecordValue | None) -> None:
        """Applies a record; None is a tombstone."""
        match key, value:
            case ConsumerMemberKey(), ConsumerMemberValue():
                self._apply_member(key.member_id, value)
            case ConsumerMemberKey(), _:
                self.set_member(key.member_id, None)
            case CurrentAssignmentKey(), CurrentAssignmentValue():
                self._apply_current_assignment(key.member_id, value)
            case CurrentAssignmentKey(), _:
                if key.member_id in self.members:
                    gone = CurrentAssignmentValue(LEAVING_EPOCH, LEAVING_EPOCH, MemberState.stable, (), ())
                    self._apply_current_assignment(key.member_id, gone)
            case TargetAssignmentKey(), TargetAssignmentValue():
                self.set_target(key.member_id, from_topic_partitions(value.topic_partitions))
            case TargetAssignmentKey(), _:
                self.set_target(key.member_id, None)
            case ConsumerGroupKey(), GroupEpochValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case TargetAssignmentEpochKey(), TargetAssignmentEpochValue():
                self.assignment_epoch = value.epoch
            case TargetAssignmentEpochKey(), _:
                self.assignment_epoch = 0
            case RegularExpressionKey(), RegularExpressionValue():
                self.regular_expressions[key.regular_expression] = value
            case RegularExpressionKey(), _:
                self.regular_expressions.pop(key.regular_expression, None)
            case PartitionMetadataKey(), _:
                self.has_partition_metadata = False

    def _apply_member(self, member_id: str, value: ConsumerMemberValue) -> None:
        member = self.members.get(member_id) or ConsumerMember(member_id)
        self.set_member(
            member_id,
            member._replace(
                group_instance_id=value.group_instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=value.subscribed_topic_names,
                subscribed_topic_regex=value.subscribed_topic_regex or "",
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic=value.classic if value.classic is not None and value.classic.supported_protocols else None,
            ),
        )

    def _apply_current_assignment(self, member_id: str, value: CurrentAssignmentValue) -> None:
        member = self.members.get(member_id) or ConsumerMember(member_id)
        known = value.state in (MemberState.stable, MemberState.unrevoked_partitions, MemberState.unreleased_partitions)
        after = member.with_assignment(
            value.member_epoch,
            value.previous_member_epoch,
            MemberState(value.state) if known else MemberState.unknown,
            from_topic_partitions(value.assigned),
            from_topic_partitions(value.pending_revocation),
        )
        self.set_member(member_id, after)

    def set_member(self, member_id: str, after: ConsumerMember | None) -> None:
        """Replaces the member and all that follows from it; None removes it."""
        before = self.members.get(member_id)
        if before is not None and after is not None and tracked_parts(before) == tracked_parts(after):
            self.members[member_id] = after  # most members of a large group change nothing but their epoch
            return
        if before is not None:
            self._forget(before)
        if after is not None:
            self.members[member_id] = after
            for partition in after.owned_partitions():
                self.owners[partition] = member_id
            self.subscriptions.add(after.subscription, after.server_assignor)
            if after.group_instance_id is not None:
                self.static_members[after.group_instance_id] = member_id
        elif before is not None:
            del self.members[member_id]
        if self.balance is not None and (before is None) != (after is None):
            if after is None:
                self.balance.remove(member_id)
            else:
                self.balance.add(member_id)

    def _forget(self, member: ConsumerMember) -> None:
        for partition in member.owned_partitions():
            if self.owners.get(partition) == member.id:
                del self.owners[partition]
        self.subscriptions.remove(member.subscription, member.server_assignor)
        if member.group_instance_id is not None and self.static_members.get(member.group_instance_id) == member.id:
            del self.static_members[member.group_instance_id]

    def set_target(self, member_id: str, after: Assignment | None) -> None:
        """None removes the member's target."""
        before = self.targets.get(member_id, NO_PARTITIONS)
        if after is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = after
        if self.balance is not None:
            self.balance.set_target(member_id, before, NO_PARTITIONS if after is None else after)

    # -- deadlines ---------------------------------------------------------------------------------

    def lower_next_deadline(self, deadline_ms: int) -> None:
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    def deadlines_of(self, member_id: str) -> MemberDeadlines:
        """The member's deadlines, for the caller to change. Made if the member has none."""
        if (found := self.deadlines.get(member_id)) is None:
            found = self.deadlines[member_id] = MemberDeadlines()
        return found

    def prepare_undo(self) -> "ConsumerGroupUndo":
        return ConsumerGroupUndo(self)


class ConsumerGroupUndo:
    """Restores the state that a group had when this was made. Saves only the entries that records
    change, so its cost does not depend on the size of the group."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._fields = read_single_fields(group)
        self._members: dict[str, tuple[ConsumerMember | None, Assignment | None, MemberDeadlines | None]] = {}
        self._expressions: dict[str, RegularExpressionValue | None] = {}

    def before_record(self, key: ConsumerGroupRecordKey) -> None:
        """Called before a record of this key is applied."""
        group = self._group
        if isinstance(key, ConsumerMemberKey | CurrentAssignmentKey | TargetAssignmentKey):
            if (member_id := key.member_id) not in self._members:
                deadlines = group.deadlines.get(member_id)
                former = None if deadlines is None else replace(deadlines)  # the heartbeat changes them in place
                self._members[member_id] = group.members.get(member_id), group.targets.get(member_id), former
        elif isinstance(key, RegularExpressionKey):
            self._expressions.setdefault(key.regular_expression, group.regular_expressions.get(key.regular_expression))

    def undo(self) -> None:
        group = self._group
        group.balance = None  # computed again when needed: this is rare
        for name, value in zip(SINGLE_FIELDS, self._fields, strict=True):
            setattr(group, name, value)
        for member_id in self._members:  # first, so that nobody owns what another member gets back
            group.set_member(member_id, None)
        for member_id, (member, target, deadlines) in self._members.items():
            group.set_member(member_id, member)
            group.set_target(member_id, target)
            _put(group.deadlines, member_id, deadlines)
        for expression, value in self._expressions.items():
            _put(group.regular_expressions, expression, value)


def _put(entries: dict[str, ValueT], key: str, value: ValueT | None) -> None:
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value
