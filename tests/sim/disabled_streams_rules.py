"""Rules of streams groups (KIP-1071), each disabled on purpose: the checks must detect it.

`RULES` has the patches by name. They exist only here.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from ottla_broker.coordination import streams_heartbeat, task_reconciliation
from ottla_broker.coordination.streams_group import StreamsMember
from ottla_broker.coordination.streams_tasks import TaskAssignment


@contextmanager
def tasks_assigned_before_release() -> Iterator[None]:
    """An active task is assigned although another member still has it."""
    with _reconciling_tasks_with(active_owners={}):
        yield


@contextmanager
def copies_of_a_task_in_one_process() -> Iterator[None]:
    """A member gets a task of which another member of its process has a copy."""
    with _reconciling_tasks_with(held_by_process=()):
        yield


@contextmanager
def _reconciling_tasks_with(**wrong: Any) -> Iterator[None]:
    original = task_reconciliation.reconcile_streams_member

    def reconcile_streams_member(member: StreamsMember, **known: Any) -> StreamsMember:
        return original(member, **{**known, **wrong})

    with patch.object(streams_heartbeat, "reconcile_streams_member", reconcile_streams_member):
        yield


@contextmanager
def task_revocation_not_awaited() -> Iterator[None]:
    """A task counts as given up as soon as its owner is asked to revoke it."""
    with patch.object(TaskAssignment, "contains_any", lambda *_: False):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        tasks_assigned_before_release,
        copies_of_a_task_in_one_process,
        task_revocation_not_awaited,
    )
}
