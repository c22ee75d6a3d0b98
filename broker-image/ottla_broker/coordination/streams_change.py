"""The records that one operation on a streams group makes. Each is applied to the group at once;
all are undone if they cannot be appended."""

from dataclasses import fields

from ottla_broker.coordination.streams_group import StreamsGroup, StreamsMember
from ottla_broker.coordination.streams_group_records import (
    StreamsCurrentKey,
    StreamsGroupKey,
    StreamsMemberKey,
    StreamsRecordKey,
    StreamsRecordValue,
    StreamsTargetEpochKey,
    StreamsTargetKey,
    StreamsTargetValue,
    StreamsTopologyKey,
)
from ottla_broker.coordination.streams_tasks import TaskAssignment, to_task_ids


class StreamsChange:
    def __init__(self, group: StreamsGroup) -> None:
        self.group = group
        self.records: list[tuple[StreamsRecordKey, StreamsRecordValue | None]] = []
        self._before: StreamsGroup | None = None

    def write(self, key: StreamsRecordKey, value: StreamsRecordValue | None) -> None:
        if self._before is None:
            self._before = self.group.copy_state()
        self.records.append((key, value))
        self.group.apply(key, value)

    def undo(self) -> None:
        """Returns the group to the state before the first record."""
        if self._before is not None:
            for one in fields(StreamsGroup):
                setattr(self.group, one.name, getattr(self._before, one.name))
            self._before = None
        self.records.clear()

    def write_member(self, member: StreamsMember) -> None:
        self.write(StreamsMemberKey(self.group.id, member.id), member.metadata_value())

    def write_current(self, member: StreamsMember) -> None:
        self.write(StreamsCurrentKey(self.group.id, member.id), member.current_value())

    def write_target(self, member_id: str, target: TaskAssignment) -> None:
        self.write(StreamsTargetKey(self.group.id, member_id), StreamsTargetValue(*map(to_task_ids, target.kinds)))

    def remove_member(self, member_id: str) -> None:
        """Removes a member's records in Kafka's order: the member last."""
        self.write(StreamsCurrentKey(self.group.id, member_id), None)
        self.write(StreamsTargetKey(self.group.id, member_id), None)
        self.write(StreamsMemberKey(self.group.id, member_id), None)
        self.group.deadlines.pop(member_id, None)

    def remove_group(self) -> None:
        """Tombstones for every record of a group without members."""
        self.write(StreamsTargetEpochKey(self.group.id), None)
        self.write(StreamsGroupKey(self.group.id), None)
        self.write(StreamsTopologyKey(self.group.id), None)
