"""LeaveGroup and Heartbeat, as the group sees them."""

from collections.abc import Sequence

from ottla_broker.coordination import rebalance
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.effects import Effect, JoinResult, LeavingMember, Now, SyncResult
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode, KafkaError


def heartbeat(group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int, now: Now) -> None:
    """Returns when all is well. REBALANCE_IN_PROGRESS asks the member to rejoin, and counts as a sign of life."""
    if group.state is GroupState.dead:
        raise KafkaError(ErrorCode.coordinator_not_available)
    member = group.check_member(member_id, group_instance_id)
    group.check_generation(generation)
    group.expect(member, now)
    if group.state is GroupState.preparing:
        raise KafkaError(ErrorCode.rebalance_in_progress)


def leave(
    group: ClassicGroup, settings: GroupCoordinatorConfig, leaving: Sequence[LeavingMember], now: Now
) -> tuple[list[ErrorCode], list[Effect]]:
    """Removes members, all before the group rebalances once; one code for each, in their order."""
    if group.state is GroupState.dead:
        raise KafkaError(ErrorCode.coordinator_not_available)
    codes = [_remove(group, one) for one in leaving]
    if ErrorCode.none in codes:
        if group.state in (GroupState.stable, GroupState.completing):
            why = next((one.reason for one, code in zip(leaving, codes, strict=True) if code is ErrorCode.none), None)
            rebalance.prepare(
                group, settings, now, f"{codes.count(ErrorCode.none)} members leave; {why or 'no reason given'}"
            )
        elif group.state is GroupState.preparing:
            rebalance.complete_if_all_joined(group, now)
    return codes, group.take_effects()


def _remove(group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id:
        if leaving.group_instance_id not in group.static_members:
            return ErrorCode.unknown_member_id
        member_id = group.static_members[leaving.group_instance_id]
    elif member_id in group.pending_joins:
        group.remove(member_id)
        return ErrorCode.none
    else:
        try:
            group.check_member(member_id, leaving.group_instance_id)
        except KafkaError as reason:
            return reason.code
    member = group.members[member_id]
    group.answer_join(member, JoinResult("", ErrorCode.unknown_member_id))
    group.answer_sync(member, SyncResult(ErrorCode.unknown_member_id))
    group.remove(member_id)
    return ErrorCode.none
