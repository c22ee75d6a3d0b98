"""The records of changes of consumer groups."""

from typing import TypeAlias

from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupRecordKey,
    ConsumerGroupRecordValue,
    ConsumerMemberKey,
    CurrentAssignmentKey,
    GroupEpochValue,
    PartitionMetadataKey,
    RegularExpressionKey,
    TargetAssignmentEpochKey,
    TargetAssignmentEpochValue,
    TargetAssignmentKey,
    TargetAssignmentValue,
)
from ottla_broker.coordination.consumer_member import ConsumerMember
from ottla_broker.coordination.group_change import GroupChange

ConsumerChange: TypeAlias = GroupChange[ConsumerGroup, ConsumerGroupRecordKey, ConsumerGroupRecordValue]


def write_member(change: ConsumerChange, member: ConsumerMember) -> None:
    change.write(ConsumerMemberKey(change.group.id, member.id), member.metadata_value())


def write_assignment(change: ConsumerChange, member: ConsumerMember) -> None:
    """Writes the assignment of `member`, which takes the place of the group's member with its id.
    The group gets `member` itself; `GroupChange.write` would build an equal one, which costs time.
    """
    change.add_record(CurrentAssignmentKey(change.group.id, member.id), member.assignment_value())
    change.group.set_member(member.id, member)


def write_target(change: ConsumerChange, member_id: str, target: TargetAssignmentValue) -> None:
    change.write(TargetAssignmentKey(change.group.id, member_id), target)


def write_assignment_epoch(change: ConsumerChange, epoch: int) -> None:
    change.write(TargetAssignmentEpochKey(change.group.id), TargetAssignmentEpochValue(epoch))


def write_epoch(change: ConsumerChange, epoch: int, metadata_hash: int) -> None:
    """Writes the group epoch, and a tombstone for the group's partition metadata if Kafka before
    4.1 wrote it.
    """
    change.write(ConsumerGroupKey(change.group.id), GroupEpochValue(epoch, metadata_hash))
    if change.group.has_partition_metadata:
        change.write(PartitionMetadataKey(change.group.id), None)


def remove_member(change: ConsumerChange, member_id: str) -> None:
    """Removes a member's records in Kafka's order: its assignments first, the member last."""
    change.write(CurrentAssignmentKey(change.group.id, member_id), None)
    change.write(TargetAssignmentKey(change.group.id, member_id), None)
    change.write(ConsumerMemberKey(change.group.id, member_id), None)
    change.group.deadlines.pop(member_id, None)


def remove_group(change: ConsumerChange) -> None:
    """Writes tombstones for every record of the group."""
    group = change.group
    members = list(group.members)
    for member_id in members:
        change.write(CurrentAssignmentKey(group.id, member_id), None)
    for member_id in members:
        change.write(TargetAssignmentKey(group.id, member_id), None)
    change.write(TargetAssignmentEpochKey(group.id), None)
    for member_id in members:
        change.write(ConsumerMemberKey(group.id, member_id), None)
    for expression in list(group.regular_expressions):
        change.write(RegularExpressionKey(group.id, expression), None)
    if group.has_partition_metadata:
        change.write(PartitionMetadataKey(group.id), None)
    change.write(ConsumerGroupKey(group.id), None)
