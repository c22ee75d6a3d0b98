"""How a member of a consumer group moves from its current to its target assignment (KIP-848). Pure.

    stable                  has the target assignment of its epoch
    unrevoked_partitions    must give up `pending_revocation` first, and stays in its epoch
    unreleased_partitions   is in the target's epoch, and waits for partitions of other members

A partition is assigned only when no other member owns it. So two members never consume it at the
same time, and between the former owner's revocation and the new owner's next heartbeat no member
does.
"""

from collections.abc import Mapping
from uuid import UUID

from ottla_broker.coordination.assignors import NO_PARTITIONS, Assignment, TopicIdPartition
from ottla_broker.coordination.consumer_member import ConsumerMember, MemberState
from ottla_broker.wire.errors import ErrorCode, KafkaError


def reconcile_member(
    member: ConsumerMember,
    *,
    target: Assignment,
    target_epoch: int,
    owners: Mapping[TopicIdPartition, str],
    subscribed: frozenset[UUID],
    owned: Assignment | None,
    has_subscription_changed: bool,
) -> ConsumerMember:
    """The member after the next step, the same object when there is none to take.

    `owned`: the partitions that the member reports as its own; None when its request does not say,
    which means that nothing has changed. `subscribed`: topics of its present subscription; the
    target may be of an earlier one. Raises FENCED_MEMBER_EPOCH for a member in a state that a later
    version has written, unless it reports that it owns nothing.
    """
    match member.state:
        case MemberState.stable if member.epoch == target_epoch and not has_subscription_changed:
            return member
        case MemberState.unrevoked_partitions if _owns_any(owned, member.pending_revocation):
            return _drop_unsubscribed(member, subscribed) if has_subscription_changed else member
        case MemberState.unknown:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.fenced_member_epoch,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _next_state(member, target_epoch, target, target_epoch, owners, subscribed, owned)
    return _next_state(member, member.epoch, target, target_epoch, owners, subscribed, owned)


def _next_state(
    member: ConsumerMember,
    epoch: int,
    target: Assignment,
    target_epoch: int,
    owners: Mapping[TopicIdPartition, str],
    subscribed: frozenset[UUID],
    owned: Assignment | None,
) -> ConsumerMember:
    is_unchanged = target is member.assigned or target == member.assigned
    if is_unchanged and target.keys() <= subscribed:  # most members of a large group
        return member.with_assignment(target_epoch, member.epoch, MemberState.stable, member.assigned, NO_PARTITIONS)
    assigned: dict[UUID, frozenset[int]] = {}
    to_revoke: dict[UUID, frozenset[int]] = {}
    to_assign: dict[UUID, frozenset[int]] = {}
    has_unreleased = False
    for topic in {**target, **member.assigned}:
        wanted = target.get(topic, frozenset()) if topic in subscribed else frozenset()
        current = member.assigned.get(topic, frozenset())
        if kept := current & wanted:
            assigned[topic] = kept
        if surplus := current - wanted:
            to_revoke[topic] = surplus
        missing = wanted - kept
        free = frozenset(partition for partition in missing if owners.get((topic, partition), member.id) == member.id)
        has_unreleased = has_unreleased or len(free) < len(missing)
        if free:
            to_assign[topic] = free
    if to_revoke and _owns_any(owned, to_revoke):
        return member.with_assignment(epoch, member.epoch, MemberState.unrevoked_partitions, assigned, to_revoke)
    state = MemberState.unreleased_partitions if has_unreleased else MemberState.stable
    return member.with_assignment(target_epoch, member.epoch, state, _union(assigned, to_assign), NO_PARTITIONS)


def _drop_unsubscribed(member: ConsumerMember, subscribed: frozenset[UUID]) -> ConsumerMember:
    """Revokes topics that the member has just unsubscribed from, while it still owes others."""
    unsubscribed = {topic: partitions for topic, partitions in member.assigned.items() if topic not in subscribed}
    if not unsubscribed:
        return member
    return member._replace(
        previous_epoch=member.epoch,
        assigned={topic: partitions for topic, partitions in member.assigned.items() if topic in subscribed},
        pending_revocation=_union(member.pending_revocation, unsubscribed),
    )


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    return owned is None or any(owned.get(topic, frozenset()) & some for topic, some in partitions.items())


def _union(one: Assignment, other: Assignment) -> Assignment:
    return {topic: one.get(topic, frozenset()) | other.get(topic, frozenset()) for topic in {**one, **other}}
