"""The sticky task assignor of streams groups (KIP-1071, as Kafka's `sticky`). Pure.

Active tasks: the numbers of two members differ by at most one, and within that limit each member
keeps its tasks. A task that its owner does not keep moves to a member with a standby copy, if one
has room within the limit. Standby tasks: the configured number of copies of each task with state,
each in another process than the active task, or fewer if there are too few processes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from ottla_broker.coordination.streams_tasks import NO_TASKS, Task, TaskAssignment, group_tasks, tasks_of


class StreamsAssignee(msgspec.Struct, frozen=True):
    """A member, with the target that it has so far."""

    process_id: str
    former: TaskAssignment


@dataclass(slots=True)
class _Load:
    """The tasks given to each member and to each process so far."""

    members: Mapping[str, StreamsAssignee]
    active: dict[str, set[Task]] = field(default_factory=dict)
    standby: dict[str, set[Task]] = field(default_factory=dict)
    by_process: dict[str, set[Task]] = field(default_factory=dict)
    process_sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for member_id, member in self.members.items():
            self.active[member_id], self.standby[member_id] = set(), set()
            self.by_process.setdefault(member.process_id, set())
            self.process_sizes[member.process_id] = self.process_sizes.get(member.process_id, 0) + 1

    def give(self, tasks_by_member: dict[str, set[Task]], member_id: str, task: Task) -> None:
        tasks_by_member[member_id].add(task)
        self.by_process[self.members[member_id].process_id].add(task)

    def task_count(self, member_id: str) -> int:
        return len(self.active[member_id]) + len(self.standby[member_id])

    def process_load(self, member_id: str) -> float:
        process = self.members[member_id].process_id
        return len(self.by_process[process]) / self.process_sizes[process]

    def least_loaded(self, member_ids: Iterable[str]) -> str | None:
        order = ((self.process_load(one), self.task_count(one), one) for one in member_ids)
        return min(order, default=(0.0, 0, None))[2]


def assign_tasks(
    members: Mapping[str, StreamsAssignee],
    task_counts: Mapping[str, int],
    stateful: Collection[str],
    standby_replicas: int,
) -> dict[str, TaskAssignment]:
    """`task_counts`: by subtopology. `stateful`: subtopologies with state."""
    if not members:
        return {}
    tasks = [Task(part, at) for part, count in sorted(task_counts.items()) for at in range(count)]
    load = _Load(members)
    _assign_active(load, tasks)
    if standby_replicas:
        _assign_standby(load, [task for task in tasks if task.subtopology_id in stateful], standby_replicas)
    return {
        one: TaskAssignment(group_tasks(load.active[one]), group_tasks(load.standby[one]), NO_TASKS) for one in members
    }


def _assign_active(load: _Load, tasks: list[Task]) -> None:
    smaller, larger_count = divmod(len(tasks), len(load.members))

    def has_room(member_id: str) -> bool:
        count = len(load.active[member_id])
        used = sum(len(have) > smaller for have in load.active.values())
        return count < smaller or (count == smaller and used < larger_count)

    owners = {task: one for one, it in load.members.items() for task in tasks_of(it.former.active)}
    standby_owners: dict[Task, list[str]] = {}
    for one, it in sorted(load.members.items()):
        for task in tasks_of(it.former.standby):
            standby_owners.setdefault(task, []).append(one)
    remaining = []
    for task in tasks:
        owner = owners.get(task)
        if owner is not None and has_room(owner):
            load.give(load.active, owner, task)
        else:
            remaining.append(task)
    for task in list(remaining):
        member_id = load.least_loaded(one for one in standby_owners.get(task, ()) if has_room(one))
        if member_id is not None:
            load.give(load.active, member_id, task)
            remaining.remove(task)
    for task in remaining:
        member_id = load.least_loaded(one for one in load.members if has_room(one))
        assert member_id is not None, "the quotas add up to the number of tasks"
        load.give(load.active, member_id, task)


def _assign_standby(load: _Load, tasks: list[Task], replicas: int) -> None:
    """Assigns the copies of each task: first to a member that has one, then to the former owner of
    the active task, which has its state, in both cases unless the member already has its share of
    all tasks; then to the least loaded members."""
    total = sum(map(len, load.active.values())) + replicas * len(tasks)
    share = -(-total // len(load.members))
    former = {
        one: (set(tasks_of(it.former.standby)), set(tasks_of(it.former.active))) for one, it in load.members.items()
    }
    wanted = [task for task in tasks for _ in range(replicas)]
    remaining = []
    for task in wanted:
        for kind in (0, 1):
            keepers = [
                one
                for one, it in load.members.items()
                if task in former[one][kind]
                and task not in load.by_process[it.process_id]
                and load.task_count(one) < share
            ]
            if (member_id := load.least_loaded(keepers)) is not None:
                load.give(load.standby, member_id, task)
                break
        else:
            remaining.append(task)
    for task in remaining:
        free = (one for one, it in load.members.items() if task not in load.by_process[it.process_id])
        if (member_id := load.least_loaded(free)) is not None:  # none: fewer processes than copies
            load.give(load.standby, member_id, task)
