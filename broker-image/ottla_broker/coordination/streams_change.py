"""Changes of streams groups, each as the records that it appends. A write of a record also applies
it to the group in memory.
"""

from typing import TypeAlias

from ottla_broker.coordination.group_change import GroupChange
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

StreamsChange: TypeAlias = GroupChange[StreamsGroup, StreamsRecordKey, StreamsRecordValue]


def write_member(change: StreamsChange, member: StreamsMember) -> None:
    change.write(StreamsMemberKey(change.group.id, member.id), member.metadata_value())


def write_current(change: StreamsChange, member: StreamsMember) -> None:
    change.write(StreamsCurrentKey(change.group.id, member.id), member.current_value())


def write_target(change: StreamsChange, member_id: str, target: TaskAssignment) -> None:
    change.write(StreamsTargetKey(change.group.id, member_id), StreamsTargetValue(*map(to_task_ids, target.kinds)))


def remove_member(change: StreamsChange, member_id: str) -> None:
    """Removes a member's records in Kafka's order: the member last."""
    change.write(StreamsCurrentKey(change.group.id, member_id), None)
    change.write(StreamsTargetKey(change.group.id, member_id), None)
    change.write(StreamsMemberKey(change.group.id, member_id), None)
    change.group.deadlines.pop(member_id, None)


def remove_group(change: StreamsChange) -> None:
    """Writes tombstones for every record of a group without members."""
    change.write(StreamsTargetEpochKey(change.group.id), None)
    change.write(StreamsGroupKey(change.group.id), None)
    change.write(StreamsTopologyKey(change.group.id), None)
