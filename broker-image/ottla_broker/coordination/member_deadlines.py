"""Deadlines of the members of a group: of their sessions, and of what they must do within their
rebalance timeout. No I/O.
"""

from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_member import ConsumerMember
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.streams_group import StreamsGroup, StreamsMember

Group = ConsumerGroup | StreamsGroup
Member = ConsumerMember | StreamsMember


def schedule_session_timeout(group: Group, member: Member, timeout_ms: int, now: Timestamps) -> None:
    """Sets the time at which the member expires unless it sends a heartbeat."""
    deadlines = group.deadlines_of(member.id)
    deadlines.session = now.loop_ms + timeout_ms
    group.lower_next_deadline(deadlines.session)


def schedule_revocation_timeout(group: Group, member: Member, now: Timestamps) -> None:
    """Gives a member that `must_revoke` its rebalance timeout to do so, counted from the first
    heartbeat in this epoch that asked for it. Removes the deadline of other members."""
    deadlines = group.deadlines_of(member.id)
    if not member.must_revoke:
        deadlines.revocation = None
    elif deadlines.revocation is None or deadlines.revocation_epoch != member.epoch:
        deadlines.revocation, deadlines.revocation_epoch = now.loop_ms + member.rebalance_timeout_ms, member.epoch
        group.lower_next_deadline(deadlines.revocation)


def take_expired_members(group: Group, now: Timestamps) -> dict[str, str]:
    """Ids of the members with a deadline that has passed → reason. Also sets the group's next
    deadline to the earliest of the other members, and drops deadlines of members that have left."""
    held = "tasks" if isinstance(group, StreamsGroup) else "partitions"
    expired: dict[str, str] = {}
    for member_id, deadlines in list(group.deadlines.items()):
        reasons = (
            (deadlines.session, "its session expired"),
            (deadlines.revocation, f"it did not give up its {held} within the rebalance timeout"),
            (deadlines.join, "it did not rejoin within the rebalance timeout"),
            (deadlines.sync, "it did not send SyncGroup within the rebalance timeout"),
        )
        reason = next((text for deadline, text in reasons if deadline is not None and deadline <= now.loop_ms), None)
        if member_id not in group.members:
            del group.deadlines[member_id]
        elif reason is not None:
            expired[member_id] = reason
    remaining = (one.earliest() for member_id, one in group.deadlines.items() if member_id not in expired)
    group.next_deadline_ms = min((deadline for deadline in remaining if deadline is not None), default=None)
    return expired
