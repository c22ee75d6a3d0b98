"""Deadlines of the members of a group: of their sessions, and of what they must do within their
rebalance timeout. No I/O.
"""

from collections.abc import Mapping

from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_member import ConsumerMember, MemberDeadlines, MemberState
from ottla_broker.coordination.effects import Timestamps


def schedule_session_timeout(group: ConsumerGroup, member: ConsumerMember, timeout_ms: int, now: Timestamps) -> None:
    deadlines = group.deadlines_of(member.id)
    deadlines.session = now.loop_ms + timeout_ms
    group.lower_next_deadline(deadlines.session)


def schedule_revocation_timeout(group: ConsumerGroup, member: ConsumerMember, now: Timestamps) -> None:
    """A member must give up its partitions within its rebalance timeout, counted from when it was
    asked to in this epoch."""
    deadlines = group.deadlines_of(member.id)
    if member.state is not MemberState.unrevoked_partitions or member.classic is not None:
        deadlines.revocation = None
    elif deadlines.revocation is None or deadlines.revocation_epoch != member.epoch:
        deadlines.revocation, deadlines.revocation_epoch = now.loop_ms + member.rebalance_timeout_ms, member.epoch
        group.lower_next_deadline(deadlines.revocation)


def take_expired_members(group: ConsumerGroup, now: Timestamps) -> dict[str, str]:
    """Members one of whose deadlines has passed, each with the reason. Finds the next deadline of
    the others."""
    expired, group.next_deadline_ms = take_expired(group.deadlines, group.members, "partitions", now)
    return expired


def take_expired(
    deadlines: dict[str, MemberDeadlines], members: Mapping[str, object], held: str, now: Timestamps
) -> tuple[dict[str, str], int | None]:
    """The members one of whose deadlines has passed, each with the reason, and the next deadline of
    the others. Drops deadlines of members that have left. `held`: a word for what members give up.
    """
    expired: dict[str, str] = {}
    for member_id, of_member in list(deadlines.items()):
        reasons = (
            (of_member.session, "its session expired"),
            (of_member.revocation, f"it did not give up its {held} within the rebalance timeout"),
            (of_member.join, "it did not rejoin within the rebalance timeout"),
            (of_member.sync, "it did not send SyncGroup within the rebalance timeout"),
        )
        reason = next((text for deadline, text in reasons if deadline is not None and deadline <= now.loop_ms), None)
        if member_id not in members:
            del deadlines[member_id]
        elif reason is not None:
            expired[member_id] = reason
    remaining = (one.earliest() for member_id, one in deadlines.items() if member_id not in expired)
    return expired, min((deadline for deadline in remaining if deadline is not None), default=None)
