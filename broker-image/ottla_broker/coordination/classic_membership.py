"""The effects of JoinGroup, SyncGroup, Heartbeat and LeaveGroup on a classic group. No I/O.

Each function changes the group and returns the effects for the shard to carry out. A `pending`
request is completed by one of those effects, now or later.
"""

from collections.abc import Sequence

from ottla_broker.coordination import classic_generations
from ottla_broker.coordination.classic_group import ClassicGroup, GroupMember, GroupState
from ottla_broker.coordination.effects import (
    AssignmentWrite,
    CompleteRequest,
    Effect,
    JoinRequest,
    JoinResult,
    LeavingMember,
    PendingRequest,
    StaticMemberWrite,
    SyncRequest,
    SyncResult,
    Timestamps,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_CLIENT_NAME_LENGTH = 249
"""Characters of a client's own name in its member id, which must fit a protocol string however long
that name is.
"""


# -- JoinGroup -------------------------------------------------------------------------------------


def join_group(group: ClassicGroup, request: JoinRequest, pending: PendingRequest, now: Timestamps) -> list[Effect]:
    """`pending` is completed now, when the next generation begins, when the member leaves or
    expires, or when a later request of the member takes its place.
    """
    member_id = request.member_id
    if not _has_room_for(group, member_id):
        group.remove_member(member_id)
        _reject(group, pending, "", ErrorCode.group_max_size_reached)
        classic_generations.maybe_complete_join(group, now)
    elif group.state is GroupState.dead:
        _reject(group, pending, member_id, ErrorCode.coordinator_not_available)
    elif not group.supports_protocols(request.protocol_type, [name for name, _ in request.protocols]):
        _reject(group, pending, member_id, ErrorCode.inconsistent_group_protocol)
    elif not member_id:
        _join_without_member_id(group, request, pending, now)
    elif member_id in group.pending_joins and request.group_instance_id is None:
        _add_new_member(group, request, member_id, pending, now)
    else:
        _rejoin(group, request, pending, now)
    return group.take_effects()


def _has_room_for(group: ClassicGroup, member_id: str) -> bool:
    """True if the group has room for this member, which may be in it already. In PreparingRebalance
    it counts waiting joins: `group.max.size` may have been lowered, and then the last members to
    rejoin are rejected. In CompletingRebalance and Stable it counts members. An Empty group always
    has room; a Dead one is not checked.
    """
    member = group.members.get(member_id)
    if group.state in (GroupState.empty, GroupState.dead):
        return True
    if group.state is GroupState.preparing:
        is_waiting = member is not None and member.join_request is not None
        return is_waiting or group.waiting_joins < group.config.group_max_size
    return member is not None or len(group.members) < group.config.group_max_size


def _reject(group: ClassicGroup, pending: PendingRequest, member_id: str, error: ErrorCode) -> None:
    group.effects.append(CompleteRequest(pending, JoinResult(member_id, error)))


def _join_without_member_id(
    group: ClassicGroup, request: JoinRequest, pending: PendingRequest, now: Timestamps
) -> None:
    name = request.group_instance_id or request.client_id
    member_id = f"{name[:MAX_CLIENT_NAME_LENGTH]}-{request.unique_suffix}"
    if request.group_instance_id is not None:
        if (old_id := group.static_members.get(request.group_instance_id)) is not None:
            _replace_static_member(group, request, old_id, member_id, pending, now)
        else:
            _add_new_member(group, request, member_id, pending, now)
    elif request.needs_member_id:
        # The response may be lost and the client start over, so an id that is not used expires with
        # the session.
        group.pending_joins[member_id] = now.loop_ms + request.session_timeout_ms
        group.lower_next_deadline(group.pending_joins[member_id])
        _reject(group, pending, member_id, ErrorCode.member_id_required)
    else:
        _add_new_member(group, request, member_id, pending, now)


def _add_new_member(
    group: ClassicGroup, request: JoinRequest, member_id: str, pending: PendingRequest, now: Timestamps
) -> None:
    if group.state is GroupState.preparing and group.previous_state is GroupState.empty:
        group.has_new_members = True
    member = GroupMember(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        request.protocols,
        join_request=pending,
        is_new=True,
    )
    group.add_member(member)
    group.schedule_session_timeout(member, now, classic_generations.NEW_MEMBER_TIMEOUT_MS)
    classic_generations.maybe_prepare_rebalance(
        group, now, f"member {member_id} joined: {request.reason or 'no reason given'}"
    )


def _rejoin(group: ClassicGroup, request: JoinRequest, pending: PendingRequest, now: Timestamps) -> None:
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as reason:
        return _reject(group, pending, request.member_id, reason.code)
    unchanged = member.protocols == request.protocols
    is_leader = group.leader == member.id
    if group.state is GroupState.empty:
        return _reject(group, pending, request.member_id, ErrorCode.unknown_member_id)
    if unchanged and (
        group.state is GroupState.completing  # the response to its JoinGroup was lost
        or (group.state is GroupState.stable and not is_leader)
    ):
        group.effects.append(CompleteRequest(pending, classic_generations.join_result(group, member)))
        return None
    # A leader that rejoins a stable group asks for a rebalance: what it assigns, such as the
    # partitions of a topic, has changed.
    cause = "the leader rejoined" if unchanged and is_leader else "the member rejoined"
    group.update_member(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    group.keep_join_request(member, pending)
    return classic_generations.maybe_prepare_rebalance(
        group, now, f"member {member.id}: {cause}: {request.reason or 'no reason given'}"
    )


def _replace_static_member(
    group: ClassicGroup, request: JoinRequest, old_id: str, new_id: str, pending: PendingRequest, now: Timestamps
) -> None:
    """A restarted static member gets a new member id. A stable group does not rebalance for it,
    unless the group would now select another protocol (KIP-345)."""
    old_leader = group.leader
    member = group.replace_static_member(old_id, new_id)
    group.schedule_session_timeout(member, now)
    previous = StaticMemberWrite(
        old_member_id=old_id,
        new_member_id=new_id,
        old_leader=old_leader,
        old_protocols=member.protocols,
        old_rebalance_timeout_ms=member.rebalance_timeout_ms,
        old_session_timeout_ms=member.session_timeout_ms,
        may_skip_assignment=request.may_skip_assignment,
    )
    group.update_member(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    group.keep_join_request(member, pending)
    if group.state is GroupState.stable and group.select_protocol() == group.protocol_name:
        group.write_assignments({m.id: m.assignment for m in group.members.values()}, previous)
    elif group.state in (GroupState.stable, GroupState.completing):
        # In CompletingRebalance the leader may be assigning partitions to the old id, and the new
        # id would get none.
        classic_generations.prepare_rebalance(
            group, now, f"static member {request.group_instance_id} rejoined as {new_id}"
        )
    else:
        classic_generations.maybe_complete_join(group, now)


# -- SyncGroup -------------------------------------------------------------------------------------


def sync_group(group: ClassicGroup, request: SyncRequest, pending: PendingRequest) -> list[Effect]:
    """`pending` is completed now, when the leader's assignment is stored, or when the group
    rebalances again.
    """
    try:
        _sync(group, request, pending)
    except KafkaError as reason:
        group.effects.append(CompleteRequest(pending, SyncResult(reason.code)))
    return group.take_effects()


def _sync(group: ClassicGroup, request: SyncRequest, pending: PendingRequest) -> None:
    if group.state is GroupState.dead:
        raise KafkaError(ErrorCode.coordinator_not_available)
    if group.state is GroupState.empty:
        raise KafkaError(ErrorCode.unknown_member_id)
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation)
    _check_protocol(request.protocol_type, group.protocol_type)
    _check_protocol(request.protocol_name, group.protocol_name)
    if group.state is GroupState.preparing:
        raise KafkaError(ErrorCode.rebalance_in_progress)

    group.pending_syncs.pop(member.id, None)
    if not group.pending_syncs:
        group.sync_deadline_ms = None
    if group.state is GroupState.stable:
        group.effects.append(CompleteRequest(pending, classic_generations.sync_result(group, member)))
        return
    # A repeated request replaces the first one.
    group.complete_sync(member, SyncResult(ErrorCode.rebalance_in_progress))
    member.sync_request = pending
    if group.leader == member.id:
        assignments = {id: request.assignments.get(id, b"") for id in group.members}
        group.write_assignments(assignments, AssignmentWrite(group.generation, assignments))


def _check_protocol(requested: str | None, selected: str | None) -> None:
    """Clients send the protocol from version 5 on; older ones leave it out."""
    if requested is not None and requested != selected:
        raise KafkaError(ErrorCode.inconsistent_group_protocol, f"the group selected {selected!r}, not {requested!r}")


# -- Heartbeat and LeaveGroup ----------------------------------------------------------------------


def heartbeat(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int, now: Timestamps
) -> ErrorCode:
    """Extends the member's session. Returns REBALANCE_IN_PROGRESS if the member must rejoin, and
    raises other errors. That code is returned, because each member gets it in each rebalance.
    """
    if group.state is GroupState.dead:
        raise KafkaError(ErrorCode.coordinator_not_available)
    member = group.check_member(member_id, group_instance_id)
    group.check_generation(generation)
    group.schedule_session_timeout(member, now)
    return ErrorCode.rebalance_in_progress if group.state is GroupState.preparing else ErrorCode.none


def leave_group(
    group: ClassicGroup, leaving: Sequence[LeavingMember], now: Timestamps
) -> tuple[list[ErrorCode], list[Effect]]:
    """Removes all these members before the group rebalances once. One error code for each, in their
    order. Raises COORDINATOR_NOT_AVAILABLE for a group that was deleted.
    """
    if group.state is GroupState.dead:
        raise KafkaError(ErrorCode.coordinator_not_available)
    codes = [_remove_member(group, member) for member in leaving]
    left = [member for member, code in zip(leaving, codes, strict=True) if code is ErrorCode.none]
    if left and group.state in (GroupState.stable, GroupState.completing):
        reason = left[0].reason or "no reason given"
        classic_generations.prepare_rebalance(group, now, f"{len(left)} members left: {reason}")
    elif left and group.state is GroupState.preparing:
        classic_generations.maybe_complete_join(group, now)
    return codes, group.take_effects()


def _remove_member(group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id:
        if leaving.group_instance_id not in group.static_members:
            return ErrorCode.unknown_member_id
        member_id = group.static_members[leaving.group_instance_id]
    elif member_id in group.pending_joins:
        group.remove_member(member_id)
        return ErrorCode.none
    else:
        try:
            group.check_member(member_id, leaving.group_instance_id)
        except KafkaError as reason:
            return reason.code
    member = group.members[member_id]
    group.complete_join(member, JoinResult("", ErrorCode.unknown_member_id))
    group.complete_sync(member, SyncResult(ErrorCode.unknown_member_id))
    group.remove_member(member_id)
    return ErrorCode.none
