"""SyncGroup, as the group sees it."""

from ottla_broker.coordination import rebalance
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.effects import Answer, AssignmentStored, Effect, SyncRequest, SyncResult, Ticket
from ottla_broker.wire.errors import ErrorCode, KafkaError


def sync(group: ClassicGroup, request: SyncRequest, ticket: Ticket) -> list[Effect]:
    """The ticket is answered now, when the leader's assignment is stored, or when the group rebalances again."""
    try:
        _sync(group, request, ticket)
    except KafkaError as reason:
        group.effects.append(Answer(ticket, SyncResult(reason.code)))
    return group.take_effects()


def _sync(group: ClassicGroup, request: SyncRequest, ticket: Ticket) -> None:
    if group.state is GroupState.dead:
        raise KafkaError(ErrorCode.coordinator_not_available)
    if group.state is GroupState.empty:
        raise KafkaError(ErrorCode.unknown_member_id)
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation)
    _check_named(request.protocol_type, group.protocol_type)
    _check_named(request.protocol_name, group.protocol_name)
    if group.state is GroupState.preparing:
        raise KafkaError(ErrorCode.rebalance_in_progress)

    group.pending_syncs.pop(member.id, None)
    if not group.pending_syncs:
        group.sync_due_ms = None
    if group.state is GroupState.stable:
        group.effects.append(Answer(ticket, rebalance.synced(group, member)))
        return
    group.answer_sync(
        member, SyncResult(ErrorCode.rebalance_in_progress)
    )  # a repeated request takes the first one's place
    member.syncing = ticket
    if group.leader == member.id:
        assignments = {id: request.assignments.get(id, b"") for id in group.members}
        group.store(assignments, AssignmentStored(group.generation, assignments))


def _check_named(named: str | None, chosen: str | None) -> None:
    """Clients from v5 on say what they were told was chosen; older ones say nothing."""
    if named is not None and named != chosen:
        raise KafkaError(ErrorCode.inconsistent_group_protocol, f"the group chose {chosen!r}, not {named!r}")
