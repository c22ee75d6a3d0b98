"""JoinGroup, as the group sees it."""

from ottla_broker.coordination import rebalance
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState, Member
from ottla_broker.coordination.effects import (
    Answer,
    Effect,
    JoinRequest,
    JoinResult,
    Now,
    StaticMemberStored,
    Ticket,
)
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode, KafkaError

LONGEST_NAME = 249
"""Characters of a client's own name in its member id, which must fit a protocol string however long that name is."""


def join(
    group: ClassicGroup, settings: GroupCoordinatorConfig, request: JoinRequest, ticket: Ticket, now: Now
) -> list[Effect]:
    """The ticket is answered now, when the next generation begins, or when the member's time is up."""
    member_id = request.member_id
    if not _has_room_for(group, settings, member_id):
        group.remove(member_id)
        _refuse(group, ticket, "", ErrorCode.group_max_size_reached)
        rebalance.complete_if_all_joined(group, now)
    elif group.state is GroupState.dead:
        _refuse(group, ticket, member_id, ErrorCode.coordinator_not_available)
    elif not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
        _refuse(group, ticket, member_id, ErrorCode.inconsistent_group_protocol)
    elif not member_id:
        _join_as_new(group, settings, request, ticket, now)
    elif member_id in group.pending_joins and request.group_instance_id is None:
        _add(group, settings, request, member_id, ticket, now)
    else:
        _join_again(group, settings, request, ticket, now)
    return group.take_effects()


def _has_room_for(group: ClassicGroup, settings: GroupCoordinatorConfig, member_id: str) -> bool:
    """While the group waits for joins, those who wait count (the size may be above a limit that was lowered, and the
    last to rejoin are turned away); afterwards its members do."""
    member = group.members.get(member_id)
    if group.state in (GroupState.empty, GroupState.dead):
        return True
    if group.state is GroupState.preparing:
        return (member is not None and member.joining is not None) or group.joining < settings.group_max_size
    return member is not None or len(group.members) < settings.group_max_size


def _refuse(group: ClassicGroup, ticket: Ticket, member_id: str, error: ErrorCode) -> None:
    group.effects.append(Answer(ticket, JoinResult(member_id, error)))


def _join_as_new(
    group: ClassicGroup, settings: GroupCoordinatorConfig, request: JoinRequest, ticket: Ticket, now: Now
) -> None:
    name = request.group_instance_id or request.client_id
    member_id = f"{name[:LONGEST_NAME]}-{request.unique}"
    if request.group_instance_id is not None:
        if (old_id := group.static_members.get(request.group_instance_id)) is not None:
            _return_as_static(group, settings, request, old_id, member_id, ticket, now)
        else:
            _add(group, settings, request, member_id, ticket, now)
    elif request.needs_member_id:
        # Its answer may get lost and the client start over; a member that only asked for an id does not hold the
        # group up for long.
        group.pending_joins[member_id] = now.ms + request.session_timeout_ms
        group.wake_by(group.pending_joins[member_id])
        _refuse(group, ticket, member_id, ErrorCode.member_id_required)
    else:
        _add(group, settings, request, member_id, ticket, now)


def _add(
    group: ClassicGroup,
    settings: GroupCoordinatorConfig,
    request: JoinRequest,
    member_id: str,
    ticket: Ticket,
    now: Now,
) -> None:
    if group.state is GroupState.preparing and group.previous is GroupState.empty:
        group.newcomers = True
    member = Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        request.protocols,
        joining=ticket,
        is_new=True,
    )
    group.add(member)
    group.expect(member, now, rebalance.NEW_MEMBER_TIMEOUT_MS)
    rebalance.prepare_or_complete(
        group, settings, now, f"member {member_id} joins; {request.reason or 'no reason given'}"
    )


def _join_again(
    group: ClassicGroup, settings: GroupCoordinatorConfig, request: JoinRequest, ticket: Ticket, now: Now
) -> None:
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as reason:
        return _refuse(group, ticket, request.member_id, reason.code)
    unchanged = member.protocols == request.protocols
    is_leader = group.leader == member.id
    if group.state is GroupState.empty:
        return _refuse(group, ticket, request.member_id, ErrorCode.unknown_member_id)
    if unchanged and (
        group.state is GroupState.completing  # the answer to its JoinGroup got lost
        or (group.state is GroupState.stable and not is_leader)
    ):
        group.effects.append(Answer(ticket, rebalance.joined(group, member)))
        return None
    # A leader that rejoins a stable group wants a rebalance: what it assigns from (say, topics' partitions) changed.
    why = "the leader asks for it" if unchanged and is_leader else "it rejoins"
    group.change(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    group.wait_for_join(member, ticket)
    return rebalance.prepare_or_complete(
        group, settings, now, f"member {member.id}: {why}; {request.reason or 'no reason given'}"
    )


def _return_as_static(
    group: ClassicGroup,
    settings: GroupCoordinatorConfig,
    request: JoinRequest,
    old_id: str,
    new_id: str,
    ticket: Ticket,
    now: Now,
) -> None:
    """A restarted instance takes its place up under a new member id; in a stable group without a rebalance, unless
    the protocol that the group would choose changes (KIP-345)."""
    old_leader = group.leader
    member = group.rename_static(old_id, new_id)
    group.expect(member, now)
    before = StaticMemberStored(
        group_instance_id=request.group_instance_id or "",
        old_member_id=old_id,
        new_member_id=new_id,
        old_leader=old_leader,
        old_protocols=member.protocols,
        old_rebalance_timeout_ms=member.rebalance_timeout_ms,
        old_session_timeout_ms=member.session_timeout_ms,
        may_skip_assignment=request.may_skip_assignment,
    )
    group.change(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    group.wait_for_join(member, ticket)
    if group.state is GroupState.stable and group.choose_protocol() == group.protocol_name:
        group.store({m.id: m.assignment for m in group.members.values()}, before)
    elif group.state in (GroupState.stable, GroupState.completing):
        # In CompletingRebalance the leader may be assigning to the old id at this moment, so the new one would get
        # nothing.
        rebalance.prepare(group, settings, now, f"static member {request.group_instance_id} came back as {new_id}")
    else:
        rebalance.complete_if_all_joined(group, now)
