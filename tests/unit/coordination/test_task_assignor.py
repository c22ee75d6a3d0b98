"""The assignor of streams groups, by properties."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.coordination.streams_tasks import NOTHING_ASSIGNED, Task, TaskAssignment, tasks_of
from ottla_broker.coordination.task_assignor import StreamsAssignee, assign_tasks

COUNTS = st.dictionaries(st.sampled_from(["0", "1", "2"]), st.integers(0, 7))
PROCESSES = st.lists(st.sampled_from("pqr"), min_size=1, max_size=6)


def members_of(processes: list[str], former: dict[str, TaskAssignment] | None = None) -> dict[str, StreamsAssignee]:
    return {
        f"m{at}": StreamsAssignee(process, (former or {}).get(f"m{at}", NOTHING_ASSIGNED))
        for at, process in enumerate(processes)
    }


def check_assignment(members: dict[str, StreamsAssignee], counts: dict[str, int], replicas: int, targets: Any) -> None:
    """Raises AssertionError unless all tasks are assigned, evenly, and each stateful task has
    `replicas` standby copies in other processes, or one in each if those are fewer.
    """
    tasks = {Task(part, at) for part, count in counts.items() for at in range(count)}
    active = Counter(task for one in targets.values() for task in tasks_of(one.active))
    assert active == Counter(tasks), "each task has one active owner"
    sizes = [sum(map(len, one.active.values())) for one in targets.values()]
    assert max(sizes) - min(sizes) <= 1
    by_process = Counter((members[one].process_id, task) for one in targets for task in targets[one].all_tasks())
    assert set(by_process.values()) <= {1}, "a process has one copy of a task"
    processes = {one.process_id for one in members.values()}
    copies = Counter(task for one in targets.values() for task in tasks_of(one.standby))
    for task in tasks:
        wanted = min(replicas, len(processes) - 1) if task.subtopology_id != "0" else 0
        assert copies[task] == wanted, f"{task}: {copies[task]} standby tasks"


@given(PROCESSES, PROCESSES, COUNTS, COUNTS, st.integers(0, 2))
def test_assignments_are_complete_balanced_and_in_separate_processes(
    first: list[str], second: list[str], counts: dict[str, int], later: dict[str, int], replicas: int
) -> None:
    members = members_of(first)
    targets = assign_tasks(members, counts, {"1", "2"}, replicas)
    check_assignment(members, counts, replicas, targets)
    again = members_of(second, targets)
    check_assignment(again, later, replicas, assign_tasks(again, later, {"1", "2"}, replicas))


@given(PROCESSES, COUNTS, st.integers(0, 2))
def test_nothing_moves_while_nothing_changes(processes: list[str], counts: dict[str, int], replicas: int) -> None:
    first = assign_tasks(members_of(processes), counts, {"1", "2"}, replicas)
    second = assign_tasks(members_of(processes, first), counts, {"1", "2"}, replicas)
    assert {one: it.active for one, it in second.items()} == {one: it.active for one, it in first.items()}


@given(PROCESSES, COUNTS)
def test_a_new_member_takes_no_more_than_its_share(processes: list[str], counts: dict[str, int]) -> None:
    first = assign_tasks(members_of(processes), counts, (), 0)
    second = assign_tasks(members_of([*processes, "s"], first), counts, (), 0)
    moved = sum(len(set(tasks_of(second[one].active)) - set(tasks_of(first[one].active))) for one in first)
    assert moved == 0, "members that stay get nothing from each other"


def test_a_task_moves_to_the_member_with_a_standby_copy() -> None:
    first = assign_tasks(members_of(["p", "q", "r"]), {"1": 3}, {"1"}, 1)
    [lost] = tasks_of(first["m0"].active)
    members = members_of(["p", "q", "r"], first)
    del members["m0"]
    second = assign_tasks(members, {"1": 3}, {"1"}, 1)
    [heir] = [one for one, it in second.items() if lost in set(tasks_of(it.active))]
    assert lost in set(tasks_of(first[heir].standby))
