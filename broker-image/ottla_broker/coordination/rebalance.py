"""How a group gets from one generation to the next: waiting for joins, electing, waiting for the leader's assignment,
and what time does.

Nobody waits for ever: whenever a JoinGroup waits, `join_due_ms` is set (or a new member's own deadline ends the
wait); whenever a SyncGroup waits, the leader owes a sync by `sync_due_ms`, or its assignment is being written and
`stored` will be called.
"""

import logging

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState, Member
from ottla_broker.coordination.effects import (
    AssignmentStored,
    Effect,
    EmptyStored,
    JoinResult,
    Now,
    StaticMemberStored,
    SyncResult,
    Then,
)
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode

log = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
"""How long a member that cannot send heartbeats yet may wait in JoinGroup; then its client, if it is alive, asks
again."""


def prepare_or_complete(group: ClassicGroup, settings: GroupCoordinatorConfig, now: Now, why: str) -> None:
    """After a member came, changed or went."""
    if group.can_rebalance:
        prepare(group, settings, now, why)
    else:
        complete_if_all_joined(group, now)


def prepare(group: ClassicGroup, settings: GroupCoordinatorConfig, now: Now, why: str) -> None:
    """Into PreparingRebalance: whoever waits in SyncGroup has to rejoin. The first rebalance of an empty group waits
    a little, so that members which start together land in one generation."""
    if group.state is GroupState.completing:
        refuse_assignment(group, now, ErrorCode.rebalance_in_progress)
    group.pending_syncs.clear()
    group.sync_due_ms = None
    initial = group.state is GroupState.empty
    group.move_to(GroupState.preparing, now)
    log.info("group %s rebalances after generation %d: %s", group.id, group.generation, why)
    if initial:
        group.newcomers = False
        delay_ms = settings.group_initial_rebalance_delay_ms
        _wait_for_joins(group, now, delay_ms)
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    elif group.all_joined:
        complete_join(group, now)
    else:
        _wait_for_joins(group, now, group.rebalance_timeout_ms)


def _wait_for_joins(group: ClassicGroup, now: Now, for_ms: int) -> None:
    group.join_due_ms = now.ms + for_ms
    group.initial_remaining_ms = None
    group.wake_by(group.join_due_ms)


def complete_if_all_joined(group: ClassicGroup, now: Now) -> None:
    """Not in the initial rebalance: that one waits for its delay."""
    if group.state is GroupState.preparing and group.previous is not GroupState.empty and group.all_joined:
        complete_join(group, now)


def complete_join(group: ClassicGroup, now: Now) -> None:
    """The next generation, from those who joined. A static member that did not keeps its place until its session
    ends."""
    group.join_due_ms = group.initial_remaining_ms = None
    for member in [m for m in group.members.values() if m.joining is None and m.group_instance_id is None]:
        group.remove(member.id)
    if group.members and not _elect_joined_leader(group):
        log.warning("group %s: no member rejoined; waiting until their sessions end", group.id)
        _wait_for_joins(group, now, group.rebalance_timeout_ms)
        return
    group.generation += 1
    group.pending_syncs.clear()
    if not group.members:
        group.protocol_name = None
        group.subscribed = group.compute_subscribed()
        group.move_to(GroupState.empty, now)
        group.store({}, EmptyStored())
        return
    group.protocol_name = group.choose_protocol()
    group.subscribed = group.compute_subscribed()
    group.move_to(GroupState.completing, now)
    for member in group.members.values():
        group.answer_join(member, joined(group, member))
        group.expect(member, now)
        member.is_new = False
        group.pending_syncs[member.id] = None
    group.sync_due_ms = now.ms + group.rebalance_timeout_ms
    group.wake_by(group.sync_due_ms)


def joined(group: ClassicGroup, member: Member) -> JoinResult:
    """What a member is told of the current generation. Only the leader sees the others."""
    return JoinResult(
        member.id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=group.joined_members() if group.leader == member.id else (),
    )


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """The leader has to be somebody who waits for the answer; false when nobody does."""
    if group.leader is not None and group.members[group.leader].joining is not None:
        return True
    found = next((member.id for member in group.members.values() if member.joining is not None), None)
    if found is None:
        return False
    group.leader = found
    return True


def refuse_assignment(group: ClassicGroup, now: Now, error: ErrorCode) -> None:
    for member in group.members.values():
        member.assignment = b""
        if group.answer_sync(member, SyncResult(error)):
            group.expect(member, now)


def synced(group: ClassicGroup, member: Member) -> SyncResult:
    return SyncResult(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def stored(
    group: ClassicGroup, settings: GroupCoordinatorConfig, then: Then, error: ErrorCode, now: Now
) -> list[Effect]:
    """A write that the group asked for has ended, well (`ErrorCode.none`) or not. Much may have happened meanwhile."""
    if isinstance(then, AssignmentStored):
        _assignment_stored(group, settings, then, error, now)
    elif isinstance(then, StaticMemberStored):
        _static_member_stored(group, then, error, now)
    elif error is not ErrorCode.none:
        log.warning("group %s: could not write that it is empty: %s", group.id, error.name)
    return group.take_effects()


def _assignment_stored(
    group: ClassicGroup, settings: GroupCoordinatorConfig, then: AssignmentStored, error: ErrorCode, now: Now
) -> None:
    if group.state is not GroupState.completing or group.generation != then.generation:
        return
    if error is not ErrorCode.none:
        refuse_assignment(group, now, error)
        prepare_or_complete(group, settings, now, f"the assignment could not be written ({error.name})")
        return
    for member in group.members.values():
        member.assignment = then.assignments.get(member.id, b"")
        if group.answer_sync(member, synced(group, member)):
            group.expect(member, now)
    group.move_to(GroupState.stable, now)


def _static_member_stored(group: ClassicGroup, then: StaticMemberStored, error: ErrorCode, now: Now) -> None:
    member = group.members.get(then.new_member_id)
    if member is None or member.joining is None or group.state is not GroupState.stable:
        return  # replaced again, gone, or rebalancing: then the JoinGroup is answered by that
    if error is ErrorCode.none:
        is_leader = group.leader == member.id
        if then.may_skip_assignment:
            result = JoinResult(
                member.id,
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=group.leader or "",
                skip_assignment=is_leader,
                members=group.joined_members() if is_leader else (),
            )
        else:
            # Without `skip_assignment` the one way to keep a returning leader from assigning anew is to name its old
            # id as leader.
            result = JoinResult(
                member.id,
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=then.old_leader or "",
            )
        group.answer_join(member, result)
        return
    group.answer_join(
        member,
        JoinResult(
            "",
            error,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=then.old_leader or "",
        ),
    )
    group.change(member, then.old_protocols, then.old_rebalance_timeout_ms, then.old_session_timeout_ms)
    group.rename_static(then.new_member_id, then.old_member_id)
    group.expect(member, now)


def tick(group: ClassicGroup, settings: GroupCoordinatorConfig, now: Now) -> list[Effect]:
    """Does what the time asks for, and finds the next deadline."""
    for member_id, due_ms in list(group.pending_joins.items()):
        if due_ms <= now.ms:
            group.remove(member_id)
            complete_if_all_joined(group, now)
    for member in list(group.members.values()):
        if member.due_ms is not None and member.due_ms <= now.ms and member.id in group.members:
            member.due_ms = None  # one that waits is expected again when it is answered
            if not member.is_waiting:
                _expire(group, settings, member, now)
    if group.join_due_ms is not None and group.join_due_ms <= now.ms:
        _joins_are_due(group, settings, now)
    if group.sync_due_ms is not None and group.sync_due_ms <= now.ms:
        _syncs_are_due(group, settings, now)
    deadlines = [group.join_due_ms, group.sync_due_ms, *group.pending_joins.values()]
    deadlines += [member.due_ms for member in group.members.values()]
    group.wake_ms = min((due for due in deadlines if due is not None), default=None)
    return group.take_effects()


def _expire(group: ClassicGroup, settings: GroupCoordinatorConfig, member: Member, now: Now) -> None:
    log.info("group %s: the session of member %s ended", group.id, member.id)
    group.answer_join(member, JoinResult("", ErrorCode.unknown_member_id))
    group.answer_sync(member, SyncResult(ErrorCode.unknown_member_id))
    group.remove(member.id)
    prepare_or_complete(group, settings, now, f"member {member.id} did not send heartbeats")


def _joins_are_due(group: ClassicGroup, settings: GroupCoordinatorConfig, now: Now) -> None:
    remaining_ms = group.initial_remaining_ms
    if remaining_ms and group.newcomers:
        delay_ms = min(settings.group_initial_rebalance_delay_ms, remaining_ms)
        _wait_for_joins(group, now, delay_ms)
        group.initial_remaining_ms = remaining_ms - delay_ms
        group.newcomers = False
    else:
        group.newcomers = False
        complete_join(group, now)


def _syncs_are_due(group: ClassicGroup, settings: GroupCoordinatorConfig, now: Now) -> None:
    group.sync_due_ms = None
    if late := [member_id for member_id in group.pending_syncs if member_id in group.members]:
        for member_id in late:
            group.remove(member_id)
        prepare(group, settings, now, f"{len(late)} members did not send SyncGroup in time")
