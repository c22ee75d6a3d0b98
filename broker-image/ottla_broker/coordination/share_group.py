"""A share group (KIP-932): its members and assignments, rebuilt from its records. No I/O, no clock.

As in a consumer group (`consumer_group`), the records are the state. Members share partitions, so
no member has to give up a partition before another member gets it: a member reaches the epoch of
its assignment with the response that contains the assignment.

Only partitions whose share state has been initialized are assigned, so that every leader of a
partition begins at the same offset.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace as replace_fields

from ottla_broker.coordination.assignors import NO_PARTITIONS, Assignment
from ottla_broker.coordination.consumer_member import from_topic_partitions, to_topic_partitions
from ottla_broker.coordination.group_change import GroupCopyUndo
from ottla_broker.coordination.group_type import SHARE
from ottla_broker.coordination.share_group_records import (
    NamedTopicPartitions,
    ShareAssignmentKey,
    ShareAssignmentValue,
    ShareGroupEpochValue,
    ShareGroupKey,
    ShareGroupRecordKey,
    ShareGroupRecordValue,
    ShareMemberKey,
    ShareMemberValue,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetKey,
    ShareTargetValue,
    StatePartitionsKey,
    StatePartitionsValue,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError


class ShareGroupState(StrEnum):
    """The names in responses of ListGroups and ShareGroupDescribe."""

    empty = "Empty"
    stable = "Stable"
    dead = "Dead"


class ShareMember(msgspec.Struct, frozen=True):
    id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = msgspec.field(default_factory=dict)

    def metadata_value(self) -> ShareMemberValue:
        return ShareMemberValue(self.rack_id, self.client_id, self.client_host, self.subscribed_topic_names)

    def assignment_value(self) -> ShareAssignmentValue:
        return ShareAssignmentValue(self.epoch, self.previous_epoch, 0, to_topic_partitions(self.assigned))


class StateTopic(msgspec.Struct, frozen=True):
    """A topic's name, and those of its partitions whose share state is initialized or being
    initialized."""

    name: str
    partitions: frozenset[int]


@dataclass(slots=True, eq=False)
class ShareGroup:
    """`metadata_version`: of the metadata for which the subscribed topics were evaluated last; −1
    after loading. `deadlines`: when each member's session ends, in loop time. `assigned_ms`: loop
    time of the last assignment."""

    id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    initialized: dict[UUID, StateTopic] = field(default_factory=dict)
    is_dead: bool = False
    deadlines: dict[str, int] = field(default_factory=dict)
    next_deadline_ms: int | None = None
    assigned_ms: int | None = None
    metadata_version: int = -1

    @property
    def type(self) -> str:
        return SHARE

    @property
    def protocol_type(self) -> str:
        return SHARE

    @property
    def state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.dead
        return ShareGroupState.stable if self.members else ShareGroupState.empty

    @property
    def is_empty(self) -> bool:
        return not self.members

    def find_member(self, member_id: str) -> ShareMember:
        """Raises UNKNOWN_MEMBER_ID."""
        if (member := self.members.get(member_id)) is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.id}.")
        return member

    def subscribed_topics(self) -> set[str]:
        return {name for member in self.members.values() for name in member.subscribed_topic_names}

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.subscribed_topic_names for member in self.members.values())

    def initialized_partitions(self, topic_id: UUID) -> frozenset[int]:
        topic = self.initialized.get(topic_id)
        return frozenset() if topic is None else topic.partitions

    # -- changes -----------------------------------------------------------------------------------

    def apply(self, key: ShareGroupRecordKey, value: ShareGroupRecordValue | None) -> None:
        """Applies a record; None is a tombstone."""
        match key, value:
            case ShareMemberKey(), ShareMemberValue():
                self.members[key.member_id] = replace_fields(
                    self.members.get(key.member_id) or ShareMember(key.member_id), **value._asdict()
                )
            case ShareMemberKey(), _:
                self.members.pop(key.member_id, None)
            case ShareAssignmentKey(), ShareAssignmentValue():
                self.members[key.member_id] = replace_fields(
                    self.members.get(key.member_id) or ShareMember(key.member_id),
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    assigned=from_topic_partitions(value.assigned),
                )
            case ShareAssignmentKey(), _:
                if (member := self.members.get(key.member_id)) is not None:
                    self.members[key.member_id] = replace_fields(
                        member, epoch=-1, previous_epoch=-1, assigned=NO_PARTITIONS
                    )
            case ShareTargetKey(), ShareTargetValue():
                self.targets[key.member_id] = from_topic_partitions(value.topic_partitions)
            case ShareTargetKey(), _:
                self.targets.pop(key.member_id, None)
            case ShareGroupKey(), ShareGroupEpochValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareTargetEpochKey(), ShareTargetEpochValue():
                self.assignment_epoch = value.epoch
            case ShareTargetEpochKey(), _:
                self.assignment_epoch = 0
            case StatePartitionsKey(), StatePartitionsValue():
                self.initialized = {
                    one.topic_id: StateTopic(one.topic_name, frozenset(one.partitions))
                    for one in value.initialized
                    if one.topic_id is not None
                }
            case StatePartitionsKey(), _:
                self.initialized = {}

    def lower_next_deadline(self, deadline_ms: int) -> None:
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    def prepare_undo(self) -> GroupCopyUndo:
        copy = replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            initialized=dict(self.initialized),
            deadlines=dict(self.deadlines),
        )
        return GroupCopyUndo(self, copy)


def state_partitions_value(
    initialized: Mapping[UUID, StateTopic], initializing: Mapping[UUID, StateTopic]
) -> StatePartitionsValue:
    return StatePartitionsValue(tuple(_named_partitions(initializing)), tuple(_named_partitions(initialized)), ())


def _named_partitions(topics: Mapping[UUID, StateTopic]) -> Iterator[NamedTopicPartitions]:
    for topic_id, topic in sorted(topics.items()):
        yield NamedTopicPartitions(topic_id, topic.name, tuple(sorted(topic.partitions)))
