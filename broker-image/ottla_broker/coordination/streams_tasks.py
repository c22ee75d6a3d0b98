"""Tasks of a Kafka Streams application. A task is a subtopology and the index of the partition that
it reads of each source topic. Active tasks process records; standby and warm-up tasks keep copies
of their state."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from ottla_broker.coordination.streams_group_records import AssignedTaskIds, TaskIds


class Task(NamedTuple):
    subtopology_id: str
    partition: int


Tasks = Mapping[str, frozenset[int]]
"""Partitions by subtopology; no empty sets."""
AssignmentEpochs = Mapping[Task, int]
"""The member epoch in which each active task was assigned to its member."""
NO_TASKS: Final[Tasks] = {}


class TaskAssignment(msgspec.Struct, frozen=True):
    active: Tasks
    standby: Tasks
    warmup: Tasks

    @property
    def kinds(self) -> tuple[Tasks, Tasks, Tasks]:
        return self.active, self.standby, self.warmup

    @property
    def is_empty(self) -> bool:
        return not any(self.kinds)

    def all_tasks(self) -> Iterator[Task]:
        for tasks in self.kinds:
            yield from tasks_of(tasks)

    def contains_any(self, other: "TaskAssignment") -> bool:
        """True if a task of `other` is in this assignment, as a task of the same kind."""
        return any(
            mine.get(subtopology, frozenset()) & partitions
            for mine, theirs in zip(self.kinds, other.kinds, strict=True)
            for subtopology, partitions in theirs.items()
        )

    def is_within(self, other: "TaskAssignment") -> bool:
        return all(
            partitions <= theirs.get(subtopology, frozenset())
            for mine, theirs in zip(self.kinds, other.kinds, strict=True)
            for subtopology, partitions in mine.items()
        )


NOTHING_ASSIGNED: Final = TaskAssignment(NO_TASKS, NO_TASKS, NO_TASKS)


def tasks_of(tasks: Tasks) -> Iterator[Task]:
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield Task(subtopology, partition)


def group_tasks(tasks: Iterator[Task] | set[Task] | list[Task]) -> Tasks:
    partitions_of: dict[str, set[int]] = {}
    for task in tasks:
        partitions_of.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in partitions_of.items()}


def to_task_ids(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology, tuple(sorted(partitions))) for subtopology, partitions in sorted(tasks.items()))


def to_assigned_task_ids(tasks: Tasks, epochs: AssignmentEpochs | None = None) -> tuple[AssignedTaskIds, ...]:
    """`epochs`: of active tasks."""
    return tuple(
        AssignedTaskIds(part, at, None if epochs is None else tuple(epochs[Task(part, partition)] for partition in at))
        for part, at in to_task_ids(tasks)
    )


def from_task_ids(task_ids: tuple[TaskIds, ...] | tuple[AssignedTaskIds, ...]) -> Tasks:
    return {one.subtopology_id: frozenset(one.partitions) for one in task_ids if one.partitions}


def read_assignment_epochs(task_ids: tuple[AssignedTaskIds, ...], default: int) -> AssignmentEpochs:
    """`default`: the epoch of tasks whose records have none."""
    return {
        Task(one.subtopology_id, partition): epoch
        for one in task_ids
        for partition, epoch in zip(
            one.partitions, one.assignment_epochs or [default] * len(one.partitions), strict=False
        )
    }
