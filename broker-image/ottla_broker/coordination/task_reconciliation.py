"""How a member of a streams group moves from its current to its target tasks (KIP-1071). Pure.

    stable             has the target tasks of its epoch
    unrevoked_tasks    must give up `pending_revocation` first, and stays in its epoch
    unreleased_tasks   is in the target's epoch, and waits for tasks of other members

A member gets an active task only when no other member has it. One process has at most one copy of a
task: it keeps the task's state in one folder.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from ottla_broker.coordination.streams_group import StreamsMember, StreamsMemberState
from ottla_broker.coordination.streams_tasks import (
    NOTHING_ASSIGNED,
    AssignmentEpochs,
    Task,
    TaskAssignment,
    Tasks,
    tasks_of,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError


def reconcile_streams_member(
    member: StreamsMember,
    *,
    target: TaskAssignment,
    target_epoch: int,
    active_owners: Mapping[Task, str],
    held_by_process: Collection[Task],
    owned: TaskAssignment | None,
) -> StreamsMember:
    """The member after the next step, the same object when there is none to take.

    `active_owners`: the member that has each active task, also while it gives the task up.
    `held_by_process`: tasks of any kind of other members of this member's process. `owned`: the
    tasks that the member reports as its own; None when its request does not say, which means that
    nothing has changed. Raises FENCED_MEMBER_EPOCH for a member in a state that a later version has
    written, unless it reports that it owns nothing.
    """
    match member.state:
        case StreamsMemberState.stable if member.epoch == target_epoch:
            return member
        case StreamsMemberState.unrevoked_tasks if owned is None or owned.contains_any(member.pending_revocation):
            return member
        case StreamsMemberState.unknown if owned is None or not owned.is_empty:
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
    held = frozenset(held_by_process)
    busy = held | {task for task, owner in active_owners.items() if owner != member.id}
    steps = [
        _step(current, wanted, taken)
        for current, wanted, taken in zip(member.assigned.kinds, target.kinds, (busy, held, held), strict=True)
    ]
    kept, revoked, assigned = (TaskAssignment(*parts) for parts in zip(*(step[:3] for step in steps), strict=True))
    if not revoked.is_empty and (owned is None or owned.contains_any(revoked)):
        epoch = target_epoch if member.state is StreamsMemberState.unknown else member.epoch
        return replace(
            member,
            epoch=epoch,
            previous_epoch=member.epoch,
            state=StreamsMemberState.unrevoked_tasks,
            assigned=kept,
            pending_revocation=revoked,
            assignment_epochs=_assignment_epochs(member, (kept, revoked), epoch),
        )
    is_waiting = any(step[3] for step in steps)
    now_assigned = _union(kept, assigned)
    after = replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        state=StreamsMemberState.unreleased_tasks if is_waiting else StreamsMemberState.stable,
        assigned=now_assigned,
        pending_revocation=NOTHING_ASSIGNED,
        assignment_epochs=_assignment_epochs(member, (now_assigned,), target_epoch),
    )
    return member if after == member else after


def _step(current: Tasks, wanted: Tasks, taken: Collection[Task]) -> tuple[Tasks, Tasks, Tasks, bool]:
    """The tasks to keep, to revoke and to assign, and whether a target task is still held by
    another member.
    """
    kept: dict[str, frozenset[int]] = {}
    revoked: dict[str, frozenset[int]] = {}
    assigned: dict[str, frozenset[int]] = {}
    is_waiting = False
    for subtopology in {**current, **wanted}:
        have, want = current.get(subtopology, frozenset()), wanted.get(subtopology, frozenset())
        free = frozenset(partition for partition in want - have if Task(subtopology, partition) not in taken)
        is_waiting = is_waiting or len(free) < len(want - have)
        for found, partitions in ((kept, have & want), (revoked, have - want), (assigned, free)):
            if partitions:
                found[subtopology] = partitions
    return kept, revoked, assigned, is_waiting


def _assignment_epochs(member: StreamsMember, held: Iterable[TaskAssignment], epoch: int) -> AssignmentEpochs:
    """Tasks that the member has had keep their epochs; new ones are assigned in `epoch`."""
    return {task: member.assignment_epochs.get(task, epoch) for one in held for task in tasks_of(one.active)}


def _union(one: TaskAssignment, other: TaskAssignment) -> TaskAssignment:
    return TaskAssignment(
        *(
            {key: mine.get(key, frozenset()) | theirs.get(key, frozenset()) for key in {**mine, **theirs}}
            for mine, theirs in zip(one.kinds, other.kinds, strict=True)
        )
    )
