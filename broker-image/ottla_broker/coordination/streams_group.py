"""A streams group (KIP-1071): its topology, members and tasks, rebuilt from its records. No I/O, no
clock.

As in a consumer group the records are the state, and group epoch, assignment epoch and member epoch
order the changes. Invariant: `active_owners` has at most one member for a task. A member owns an
active task from its assignment until the member reports that it has given the task up, leaves or is
fenced.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum

import msgspec
from msgspec.structs import replace as replace_fields

from ottla_broker.coordination.consumer_member import LEAVING_EPOCH, MEMBER_EPOCHS_SINCE, MemberDeadlines
from ottla_broker.coordination.group_change import GroupCopyUndo
from ottla_broker.coordination.group_type import STREAMS
from ottla_broker.coordination.streams_group_records import (
    AssignedTaskIds,
    KeyValue,
    StreamsCurrentKey,
    StreamsCurrentValue,
    StreamsEpochValue,
    StreamsGroupKey,
    StreamsMemberKey,
    StreamsMemberValue,
    StreamsRecordKey,
    StreamsRecordValue,
    StreamsTargetEpochKey,
    StreamsTargetEpochValue,
    StreamsTargetKey,
    StreamsTargetValue,
    StreamsTopologyKey,
    StreamsTopologyValue,
    UserEndpoint,
)
from ottla_broker.coordination.streams_tasks import (
    NOTHING_ASSIGNED,
    AssignmentEpochs,
    Task,
    TaskAssignment,
    from_task_ids,
    read_assignment_epochs,
    tasks_of,
    to_assigned_task_ids,
)
from ottla_broker.coordination.streams_topology import ConfiguredTopology, input_topic_names
from ottla_broker.wire.errors import ErrorCode, KafkaError


class StreamsGroupState(StrEnum):
    """The names in responses of ListGroups and StreamsGroupDescribe."""

    empty = "Empty"
    not_ready = "NotReady"
    assigning = "Assigning"
    reconciling = "Reconciling"
    stable = "Stable"
    dead = "Dead"


class StreamsMemberState(IntEnum):
    """The numbers in records. Any other number, of a later version, is `unknown`."""

    stable = 1
    unrevoked_tasks = 2
    unreleased_tasks = 3
    unknown = 127


class StreamsMember(msgspec.Struct, frozen=True):
    """One thread of an application. `assigned`: the tasks that it may run. `pending_revocation`:
    the tasks that it must give up before it reaches the next epoch. `assignment_epochs`: of the
    active tasks in both.
    """

    id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: tuple[KeyValue, ...] = ()
    epoch: int = 0
    previous_epoch: int = -1
    state: StreamsMemberState = StreamsMemberState.stable
    assigned: TaskAssignment = NOTHING_ASSIGNED
    pending_revocation: TaskAssignment = NOTHING_ASSIGNED
    assignment_epochs: AssignmentEpochs = msgspec.field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is StreamsMemberState.stable and self.epoch == assignment_epoch

    @property
    def must_revoke(self) -> bool:
        """True if it must give up tasks within its rebalance timeout."""
        return self.state is StreamsMemberState.unrevoked_tasks

    def held_tasks(self) -> Iterator[Task]:
        yield from self.assigned.all_tasks()
        yield from self.pending_revocation.all_tasks()

    def active_tasks(self) -> Iterator[Task]:
        yield from tasks_of(self.assigned.active)
        yield from tasks_of(self.pending_revocation.active)

    def metadata_value(self) -> StreamsMemberValue:
        return StreamsMemberValue(
            self.group_instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topology_epoch,
            self.process_id,
            self.user_endpoint,
            self.client_tags,
        )

    def current_value(self) -> StreamsCurrentValue:
        return StreamsCurrentValue(
            self.epoch,
            self.previous_epoch,
            self.state,
            *self._assigned_task_ids(self.assigned),
            *self._assigned_task_ids(self.pending_revocation),
        )

    def _assigned_task_ids(self, held: TaskAssignment) -> Iterator[tuple[AssignedTaskIds, ...]]:
        yield to_assigned_task_ids(held.active, self.assignment_epochs)
        yield to_assigned_task_ids(held.standby)
        yield to_assigned_task_ids(held.warmup)


@dataclass(slots=True, eq=False)
class StreamsGroup:
    """`configured`: the topology with the existing topics of version `metadata_version` of the
    metadata. `shutdown_requested_by`: a member that has requested that the whole application stop.
    `endpoint_epoch` grows when tasks move between members with endpoints. `delayed_until_ms`: loop
    time before which a group that was empty gets no tasks. `assigned_ms`: loop time of the last
    assignment. None of these is stored in records."""

    id: str
    epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    assignment_configs: tuple[KeyValue, ...] = ()
    assignment_epoch: int = 0
    topology: StreamsTopologyValue | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    targets: dict[str, TaskAssignment] = field(default_factory=dict)
    active_owners: dict[Task, str] = field(default_factory=dict)
    is_dead: bool = False
    configured: ConfiguredTopology | None = None
    metadata_version: int = -1
    deadlines: dict[str, MemberDeadlines] = field(default_factory=dict)
    next_deadline_ms: int | None = None
    assigned_ms: int | None = None
    shutdown_requested_by: str | None = None
    endpoint_epoch: int = 0
    delayed_until_ms: int | None = None

    # -- queries -----------------------------------------------------------------------------------

    @property
    def type(self) -> str:
        return STREAMS

    @property
    def protocol_type(self) -> str:
        return STREAMS

    @property
    def state(self) -> StreamsGroupState:
        if self.is_dead:
            return StreamsGroupState.dead
        if not self.members:
            return StreamsGroupState.empty
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.not_ready
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.assigning
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.stable
        return StreamsGroupState.reconciling

    @property
    def is_empty(self) -> bool:
        return not self.members

    def find_member(self, member_id: str) -> StreamsMember:
        """Raises UNKNOWN_MEMBER_ID."""
        if (member := self.members.get(member_id)) is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.id}.")
        return member

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self.input_topics()

    def input_topics(self) -> set[str]:
        """Names of the topics that the application reads, whether they exist or not."""
        if self.topology is None:
            return set()
        return {name for part in self.topology.subtopologies for name in input_topic_names(part)}

    def tasks_held_by_process_peers(self, member: StreamsMember) -> set[Task]:
        """Tasks of the other members of the member's process."""
        return {
            task
            for other in self.members.values()
            if other.process_id == member.process_id and other.id != member.id
            for task in other.held_tasks()
        }

    def check_commit(
        self, member_id: str, member_epoch: int, version: int, partitions: Iterable[tuple[str, int]]
    ) -> None:
        """Raises KafkaError unless this member may commit offsets of these partitions with this
        version of OffsetCommit. Administrators commit without a member while the group is empty.

        A member that has not learned of its new epoch may commit with an older one for tasks that
        it had in that epoch and still has (KAFKA-19779).
        """
        if self.is_dead:
            raise KafkaError(ErrorCode.coordinator_not_available)
        if member_epoch < 0 and self.is_empty:
            return
        member = self.find_member(member_id)
        if version < MEMBER_EPOCHS_SINCE:
            raise KafkaError(
                ErrorCode.unsupported_version,
                "OffsetCommit version 9 or above must be used by members using the streams group protocol",
            )
        if member_epoch >= member.epoch:
            _check_epoch(member, member_epoch)
            return
        for topic, partition in partitions:
            assigned_in = member.assignment_epochs.get(Task(self._subtopology_of(topic), partition))
            if assigned_in is None or member_epoch < assigned_in:
                raise KafkaError(
                    ErrorCode.stale_member_epoch,
                    f"The member has not had the task of {topic}-{partition} since epoch {member_epoch}.",
                )

    def _subtopology_of(self, topic: str) -> str:
        """The id of the subtopology that reads the topic; empty if none does."""
        for part in self.topology.subtopologies if self.topology is not None else ():
            if topic in input_topic_names(part):
                return part.subtopology_id
        return ""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError unless this member may fetch the offsets; every client may fetch them
        without a member id."""
        if member_id is None and member_epoch < 0:
            return
        _check_epoch(self.find_member(member_id or ""), member_epoch)

    # -- changes -----------------------------------------------------------------------------------

    def apply(self, key: StreamsRecordKey, value: StreamsRecordValue | None) -> None:
        """Applies a record; None is a tombstone."""
        match key, value:
            case StreamsMemberKey(), StreamsMemberValue():
                self.members[key.member_id] = replace_fields(self._member(key.member_id), **value._asdict())
            case StreamsMemberKey(), _:
                self._remove_member(key.member_id)
            case StreamsCurrentKey(), StreamsCurrentValue():
                self._apply_current(key.member_id, value)
            case StreamsCurrentKey(), _:
                if key.member_id in self.members:
                    nothing = StreamsMember(key.member_id, epoch=LEAVING_EPOCH).current_value()
                    self._apply_current(key.member_id, nothing)
            case StreamsTargetKey(), StreamsTargetValue():
                self.targets[key.member_id] = TaskAssignment(*map(from_task_ids, value))
            case StreamsTargetKey(), _:
                self.targets.pop(key.member_id, None)
            case StreamsGroupKey(), StreamsEpochValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
                self.validated_topology_epoch = value.validated_topology_epoch
                self.assignment_configs = value.assignment_configs
            case StreamsTargetEpochKey(), StreamsTargetEpochValue():
                self.assignment_epoch = value.epoch
            case StreamsTargetEpochKey(), _:
                self.assignment_epoch = 0
            case StreamsTopologyKey(), StreamsTopologyValue():
                self.topology, self.configured = value, None
            case StreamsTopologyKey(), _:
                self.topology = self.configured = None

    def _member(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id)

    def _apply_current(self, member_id: str, value: StreamsCurrentValue) -> None:
        member = self._member(member_id)
        self._release(member)
        known = value.state in (1, 2, 3)
        member = self.members[member_id] = replace_fields(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=StreamsMemberState(value.state) if known else StreamsMemberState.unknown,
            assigned=TaskAssignment(*map(from_task_ids, (value.active, value.standby, value.warmup))),
            pending_revocation=TaskAssignment(
                *map(
                    from_task_ids,
                    (
                        value.active_pending_revocation,
                        value.standby_pending_revocation,
                        value.warmup_pending_revocation,
                    ),
                )
            ),
            assignment_epochs=read_assignment_epochs(
                (*value.active, *value.active_pending_revocation), value.member_epoch
            ),
        )
        for task in member.active_tasks():
            self.active_owners[task] = member_id

    def _remove_member(self, member_id: str) -> None:
        if (member := self.members.pop(member_id, None)) is not None:
            self._release(member)
        if not self.members:
            self.shutdown_requested_by = None

    def _release(self, member: StreamsMember) -> None:
        for task in member.active_tasks():
            if self.active_owners.get(task) == member.id:
                del self.active_owners[task]

    def prepare_undo(self) -> GroupCopyUndo:
        copy = replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            active_owners=dict(self.active_owners),
            deadlines=dict(self.deadlines),
        )
        return GroupCopyUndo(self, copy)

    # -- deadlines ---------------------------------------------------------------------------------

    def lower_next_deadline(self, deadline_ms: int) -> None:
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    def deadlines_of(self, member_id: str) -> MemberDeadlines:
        """The member's deadlines, for the caller to change. Each call puts a new object into the
        group, so that an undone change restores the former one."""
        known = self.deadlines.get(member_id)
        found = self.deadlines[member_id] = MemberDeadlines() if known is None else replace(known)
        return found


def _check_epoch(member: StreamsMember, epoch: int) -> None:
    if epoch != member.epoch:
        raise KafkaError(
            ErrorCode.stale_member_epoch,
            f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
        )
