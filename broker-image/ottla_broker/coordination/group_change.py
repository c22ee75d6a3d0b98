"""The records that one operation on a consumer group makes. Each is applied to the group at once;
all are undone if they cannot be appended."""

from dataclasses import fields

from ottla_broker.coordination.consumer_group import ConsumerGroup, ConsumerMember
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

GroupRecord = tuple[ConsumerGroupRecordKey, ConsumerGroupRecordValue | None]


class GroupChange:
    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[GroupRecord] = []
        self._before: ConsumerGroup | None = None

    def write(self, key: ConsumerGroupRecordKey, value: ConsumerGroupRecordValue | None) -> None:
        if self._before is None:
            self._before = self.group.copy_state()
        self.records.append((key, value))
        self.group.apply(key, value)

    def undo(self) -> None:
        """Returns the group to the state before the first record."""
        if self._before is not None:
            for one in fields(ConsumerGroup):
                setattr(self.group, one.name, getattr(self._before, one.name))
            self._before = None
        self.records.clear()

    # -- records -----------------------------------------------------------------------------------

    def write_member(self, member: ConsumerMember) -> None:
        self.write(ConsumerMemberKey(self.group.id, member.id), member.metadata_value())

    def write_assignment(self, member: ConsumerMember) -> None:
        self.write(CurrentAssignmentKey(self.group.id, member.id), member.assignment_value())

    def write_target(self, member_id: str, target: TargetAssignmentValue) -> None:
        self.write(TargetAssignmentKey(self.group.id, member_id), target)

    def write_assignment_epoch(self, epoch: int) -> None:
        self.write(TargetAssignmentEpochKey(self.group.id), TargetAssignmentEpochValue(epoch))

    def write_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.write(ConsumerGroupKey(self.group.id), GroupEpochValue(epoch, metadata_hash))
        if self.group.has_partition_metadata:
            self.write(PartitionMetadataKey(self.group.id), None)

    def remove_member(self, member_id: str) -> None:
        """Removes a member's records in Kafka's order: its assignments first, the member last."""
        self.write(CurrentAssignmentKey(self.group.id, member_id), None)
        self.write(TargetAssignmentKey(self.group.id, member_id), None)
        self.write(ConsumerMemberKey(self.group.id, member_id), None)
        self.group.deadlines.pop(member_id, None)

    def remove_group(self) -> None:
        """Tombstones for every record of the group."""
        members = list(self.group.members)
        for member_id in members:
            self.write(CurrentAssignmentKey(self.group.id, member_id), None)
        for member_id in members:
            self.write(TargetAssignmentKey(self.group.id, member_id), None)
        self.write(TargetAssignmentEpochKey(self.group.id), None)
        for member_id in members:
            self.write(ConsumerMemberKey(self.group.id, member_id), None)
        for expression in list(self.group.regular_expressions):
            self.write(RegularExpressionKey(self.group.id, expression), None)
        if self.group.has_partition_metadata:
            self.write(PartitionMetadataKey(self.group.id), None)
        self.write(ConsumerGroupKey(self.group.id), None)
