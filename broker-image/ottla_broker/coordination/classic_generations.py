"""How a classic group moves from one generation to the next: joins, the leader's election and
assignment, deadlines.

No request waits forever. Whenever a JoinGroup waits, `join_deadline_ms` is set, or a new member's
own deadline ends the wait. Whenever a SyncGroup waits, the leader has to sync before
`sync_deadline_ms`, or its assignment is being written and `on_write_completed` will be called.
"""

import logging

from ottla_broker.coordination.classic_group import ClassicGroup, GroupMember, GroupState
from ottla_broker.coordination.effects import (
    AssignmentWrite,
    Effect,
    EmptyGroupWrite,
    JoinResult,
    StaticMemberWrite,
    SyncResult,
    Timestamps,
    WritePurpose,
)
from ottla_broker.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
"""How long a member that cannot send heartbeats yet may wait in JoinGroup; after that its client
retries.
"""


def maybe_prepare_rebalance(group: ClassicGroup, now: Timestamps, reason: str) -> None:
    """Called after a member joined, changed or left. Starts a rebalance. If one is in progress,
    starts the next generation if all members have joined."""
    if group.can_rebalance:
        prepare_rebalance(group, now, reason)
    else:
        maybe_complete_join(group, now)


def prepare_rebalance(group: ClassicGroup, now: Timestamps, reason: str) -> None:
    """Moves the group to PreparingRebalance; members that wait in SyncGroup have to rejoin. The
    first rebalance of an empty group is delayed, so that members which start together join one
    generation."""
    if group.state is GroupState.completing:
        reset_assignments(group, now, ErrorCode.rebalance_in_progress)
    group.pending_syncs.clear()
    group.sync_deadline_ms = None
    initial = group.state is GroupState.empty
    group.transition_to(GroupState.preparing, now)
    logger.info("preparing to rebalance group %s in generation %d: %s", group.id, group.generation, reason)
    if initial:
        group.has_new_members = False
        delay_ms = group.config.group_initial_rebalance_delay_ms
        _set_join_deadline(group, now, delay_ms)
        group.initial_delay_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    elif group.have_all_members_joined:
        complete_join_phase(group, now)
    else:
        _set_join_deadline(group, now, group.rebalance_timeout_ms)


def _set_join_deadline(group: ClassicGroup, now: Timestamps, for_ms: int) -> None:
    group.join_deadline_ms = now.loop_ms + for_ms
    group.initial_delay_remaining_ms = None
    group.lower_next_deadline(group.join_deadline_ms)


def maybe_complete_join(group: ClassicGroup, now: Timestamps) -> None:
    """Starts the next generation if all members have joined, except in the initial rebalance, which
    waits for its delay."""
    if (
        group.state is GroupState.preparing
        and group.previous_state is not GroupState.empty
        and group.have_all_members_joined
    ):
        complete_join_phase(group, now)


def complete_join_phase(group: ClassicGroup, now: Timestamps) -> None:
    """Starts the next generation with the members that joined, and removes dynamic members that did
    not join. Static members remain until their sessions expire. If no member has joined, the group
    waits for joins again. A group without members becomes Empty."""
    group.join_deadline_ms = group.initial_delay_remaining_ms = None
    for member in [m for m in group.members.values() if m.join_request is None and m.group_instance_id is None]:
        group.remove_member(member.id)
    if group.members and not _elect_joined_leader(group):
        logger.warning("group %s: no member rejoined; waiting for their sessions to expire", group.id)
        _set_join_deadline(group, now, group.rebalance_timeout_ms)
        return
    group.generation += 1
    group.pending_syncs.clear()
    if not group.members:
        group.protocol_name = None
        group.subscribed_topics = group.compute_subscribed_topics()
        group.transition_to(GroupState.empty, now)
        group.write_assignments({}, EmptyGroupWrite())
        return
    group.protocol_name = group.select_protocol()
    group.subscribed_topics = group.compute_subscribed_topics()
    group.transition_to(GroupState.completing, now)
    for member in group.members.values():
        group.complete_join(member, join_result(group, member))
        group.schedule_session_timeout(member, now)
        member.is_new = False
        group.pending_syncs[member.id] = None
    group.sync_deadline_ms = now.loop_ms + group.rebalance_timeout_ms
    group.lower_next_deadline(group.sync_deadline_ms)


def join_result(group: ClassicGroup, member: GroupMember) -> JoinResult:
    """A member's result in the current generation. Only the leader's lists the members."""
    return JoinResult(
        member.id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=group.member_metadata() if group.leader == member.id else (),
    )


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """The leader must be a member whose JoinGroup waits. False when there is none."""
    if group.leader is not None and group.members[group.leader].join_request is not None:
        return True
    found = next((member.id for member in group.members.values() if member.join_request is not None), None)
    if found is None:
        return False
    group.leader = found
    return True


def reset_assignments(group: ClassicGroup, now: Timestamps, error: ErrorCode) -> None:
    """Empties the assignments of all members, and completes waiting SyncGroup requests with the
    error."""
    for member in group.members.values():
        member.assignment = b""
        if group.complete_sync(member, SyncResult(error)):
            group.schedule_session_timeout(member, now)


def sync_result(group: ClassicGroup, member: GroupMember) -> SyncResult:
    return SyncResult(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def on_write_completed(group: ClassicGroup, write: WritePurpose, error: ErrorCode, now: Timestamps) -> list[Effect]:
    """Called when a write has succeeded (`error` is `ErrorCode.none`) or failed. The group may have
    changed since it requested the write.
    """
    if isinstance(write, AssignmentWrite):
        _on_assignment_written(group, write, error, now)
    elif isinstance(write, StaticMemberWrite):
        _on_static_member_written(group, write, error, now)
    elif error is not ErrorCode.none:
        logger.warning("group %s: failed to write the empty group: %s", group.id, error.name)
    return group.take_effects()


def _on_assignment_written(group: ClassicGroup, write: AssignmentWrite, error: ErrorCode, now: Timestamps) -> None:
    if group.state is not GroupState.completing or group.generation != write.generation:
        return
    if error is not ErrorCode.none:
        reset_assignments(group, now, error)
        maybe_prepare_rebalance(group, now, f"the assignment could not be written ({error.name})")
        return
    for member in group.members.values():
        member.assignment = write.assignments.get(member.id, b"")
        if group.complete_sync(member, sync_result(group, member)):
            group.schedule_session_timeout(member, now)
    group.transition_to(GroupState.stable, now)


def _on_static_member_written(group: ClassicGroup, write: StaticMemberWrite, error: ErrorCode, now: Timestamps) -> None:
    member = group.members.get(write.new_member_id)
    if member is None or member.join_request is None or group.state is not GroupState.stable:
        return  # replaced again, removed, or rebalancing, which completes the JoinGroup
    result = join_result(group, member)
    if error is not ErrorCode.none:
        result.member_id, result.error, result.leader, result.members = "", error, write.old_leader or "", ()
        group.complete_join(member, result)
        group.update_member(member, write.old_protocols, write.old_rebalance_timeout_ms, write.old_session_timeout_ms)
        group.replace_static_member(write.new_member_id, write.old_member_id)
        group.schedule_session_timeout(member, now)
    elif write.may_skip_assignment:
        result.skip_assignment = group.leader == member.id
        group.complete_join(member, result)
    else:
        # Without `skip_assignment`, a returning leader assigns again unless its old id is named as
        # leader.
        result.leader, result.members = write.old_leader or "", ()
        group.complete_join(member, result)


def expire_deadlines(group: ClassicGroup, now: Timestamps) -> list[Effect]:
    """Acts on the deadlines that have passed, and finds the next one."""
    for member_id, deadline_ms in list(group.pending_joins.items()):
        if deadline_ms <= now.loop_ms:
            group.remove_member(member_id)
            maybe_complete_join(group, now)
    for member in list(group.members.values()):
        session_deadline_ms = member.session_deadline_ms
        if session_deadline_ms is not None and session_deadline_ms <= now.loop_ms and member.id in group.members:
            member.session_deadline_ms = None  # scheduled again when its request is completed
            if not member.is_awaiting_response:
                _expire_member(group, member, now)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now.loop_ms:
        _on_join_deadline(group, now)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now.loop_ms:
        _on_sync_deadline(group, now)
    deadlines = [group.join_deadline_ms, group.sync_deadline_ms, *group.pending_joins.values()]
    deadlines += [member.session_deadline_ms for member in group.members.values()]
    group.next_deadline_ms = min((deadline for deadline in deadlines if deadline is not None), default=None)
    return group.take_effects()


def _expire_member(group: ClassicGroup, member: GroupMember, now: Timestamps) -> None:
    logger.info("group %s: session of member %s expired", group.id, member.id)
    group.complete_join(member, JoinResult("", ErrorCode.unknown_member_id))
    group.complete_sync(member, SyncResult(ErrorCode.unknown_member_id))
    group.remove_member(member.id)
    maybe_prepare_rebalance(group, now, f"member {member.id} did not send heartbeats")


def _on_join_deadline(group: ClassicGroup, now: Timestamps) -> None:
    remaining_ms = group.initial_delay_remaining_ms
    if remaining_ms and group.has_new_members:
        delay_ms = min(group.config.group_initial_rebalance_delay_ms, remaining_ms)
        _set_join_deadline(group, now, delay_ms)
        group.initial_delay_remaining_ms = remaining_ms - delay_ms
        group.has_new_members = False
    else:
        group.has_new_members = False
        complete_join_phase(group, now)


def _on_sync_deadline(group: ClassicGroup, now: Timestamps) -> None:
    group.sync_deadline_ms = None
    if late := [member_id for member_id in group.pending_syncs if member_id in group.members]:
        for member_id in late:
            group.remove_member(member_id)
        prepare_rebalance(group, now, f"{len(late)} members did not send SyncGroup in time")
