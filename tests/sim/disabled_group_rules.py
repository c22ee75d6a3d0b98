"""Rules of consumer groups (KIP-848), each disabled on purpose: the checks must detect it.

`RULES` has the patches by name. They exist only here.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from ottla_broker.coordination import consumer_heartbeat, group_migration, reconciliation
from ottla_broker.coordination.classic_group import ClassicGroup, GroupMember
from ottla_broker.coordination.consumer_member import ConsumerMember
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata


@contextmanager
def assignment_before_revocation() -> Iterator[None]:
    """A partition is assigned although another member still owns it."""
    original = reconciliation.reconcile_member

    def reconcile_member(member: ConsumerMember, **known: Any) -> ConsumerMember:
        return original(member, **{**known, "owners": {}})

    with patch.object(consumer_heartbeat, "reconcile_member", reconcile_member):
        yield


@contextmanager
def revocation_not_awaited() -> Iterator[None]:
    """A partition counts as given up as soon as its owner is asked to revoke it."""
    with patch.object(reconciliation, "_owns_any", lambda *_: False):
        yield


@contextmanager
def assignments_lost_on_upgrade() -> Iterator[None]:
    """The members of a classic group that becomes a consumer group own nothing."""
    original = group_migration._to_consumer_member

    def to_consumer_member(group: ClassicGroup, member: GroupMember, metadata: CoordinatorMetadata) -> ConsumerMember:
        return original(group, member, metadata)._replace(assigned={})

    with patch.object(group_migration, "_to_consumer_member", to_consumer_member):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        assignment_before_revocation,
        revocation_not_awaited,
        assignments_lost_on_upgrade,
    )
}
