"""Members that use the classic protocol in a consumer group, while the group migrates (KIP-848). No
I/O.

JoinGroup takes the place of a heartbeat that raises the member's epoch, which is its generation.
SyncGroup returns the member's assignment, and Heartbeat returns REBALANCE_IN_PROGRESS when the
member must rejoin. No member is a leader: the coordinator assigns. Unlike in a classic group, no
request waits for other members.
"""

from collections.abc import Sequence
from uuid import UUID

from ottla_broker.coordination.assignors import NO_PARTITIONS, Assignment
from ottla_broker.coordination.classic_group import CONSUMER_PROTOCOL
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ottla_broker.coordination.consumer_heartbeat import (
    check_room,
    find_or_replace_static_member,
    may_describe_all,
    reconcile,
)
from ottla_broker.coordination.consumer_member import ConsumerMember, MemberState
from ottla_broker.coordination.consumer_protocol import (
    NamedPartitions,
    encode_assignment,
    read_subscription,
    read_version,
)
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
    Timestamps,
)
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.coordination.group_epoch import update_member
from ottla_broker.coordination.member_deadlines import schedule_session_timeout
from ottla_broker.coordination.target_assignment import update_target_assignment
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage


def join_group(
    change: ConsumerChange,
    request: JoinRequest,
    metadata: CoordinatorMetadata,
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> JoinResult:
    """Adds or updates a member of the classic protocol in a consumer group. If the request of a
    dynamic member `needs_member_id` and has none, the member is not added: the result has its new
    id and the error MEMBER_ID_REQUIRED. Raises GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL,
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH.
    """
    group = change.group
    member_id = request.member_id or request.unique_suffix
    check_room(group, member_id, request.group_instance_id, config)
    _check_protocols(group, request)
    if not request.member_id and request.group_instance_id is None and request.needs_member_id:
        return JoinResult(member_id, ErrorCode.member_id_required)
    try:
        subscription = read_subscription(request.protocols[0][1])
    except MalformedMessage as reason:
        raise KafkaError(ErrorCode.inconsistent_group_protocol, f"the subscription: {reason}") from reason
    if request.group_instance_id is None:
        member = group.members.get(member_id) or ConsumerMember(member_id)
    elif request.member_id:
        member = group.find_static_member(member_id, request.group_instance_id)
    else:
        member = find_or_replace_static_member(change, member_id, request.group_instance_id, uses_classic_protocol=True)
    updated = member._replace(
        group_instance_id=request.group_instance_id or member.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMemberMetadata(
            request.session_timeout_ms,
            tuple(ClassicProtocol(name, metadata) for name, metadata in request.protocols),
        ),
    )
    has_changed = update_member(change, member, updated, metadata, may_describe_all, config, now)
    update_target_assignment(change, metadata, config, now)
    owned = _by_topic_id(subscription.owned, metadata)
    after = reconcile(change, group.members[member_id], metadata, owned, has_changed)
    schedule_session_timeout(group, after, request.session_timeout_ms, now)
    deadlines = group.deadlines_of(member_id)
    deadlines.join, deadlines.sync = None, now.loop_ms + request.rebalance_timeout_ms
    deadlines.revocation = None
    group.lower_next_deadline(deadlines.sync)
    return JoinResult(
        member_id,
        generation=after.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=request.protocols[0][0],
    )


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    """The request must have a protocol that all classic members support, so that the group can
    become a classic group again. As in Kafka, the former protocols of the member itself count, too.
    """
    classic = [member.classic for member in group.members.values() if member.classic is not None]
    shared = {name for name, _ in request.protocols}
    for one in classic:
        shared &= {protocol.name for protocol in one.supported_protocols}
    if request.protocol_type != CONSUMER_PROTOCOL or not shared:
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol, f"Member {request.member_id}'s protocols are not supported."
        )


def _by_topic_id(owned: Sequence[NamedPartitions], metadata: CoordinatorMetadata) -> Assignment:
    if not owned:
        return NO_PARTITIONS
    found: dict[UUID, frozenset[int]] = {}
    for one in owned:
        if (topic := metadata.topic_id(one.topic)) is not None:
            found[topic] = found.get(topic, frozenset()) | frozenset(one.partitions)
    return found


def sync_group(
    group: ConsumerGroup, request: SyncRequest, metadata: CoordinatorMetadata, now: Timestamps
) -> SyncResult:
    """The member's assignment. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS."""
    member, classic = _find_classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation)
    protocol = classic.supported_protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, protocol.name):
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol,
            f"the group selected {protocol.name!r}, not {request.protocol_name!r}",
        )
    if group.epoch > member.epoch and member.state is not MemberState.unrevoked_partitions:
        _schedule_join_timeout(group, member, now)
        raise KafkaError(ErrorCode.rebalance_in_progress, f"member {member.id} must rejoin to catch up")
    group.deadlines_of(member.id).sync = None
    schedule_session_timeout(group, member, classic.session_timeout_ms, now)
    assigned = assignment_by_name(member.assigned, metadata)
    return SyncResult(
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=protocol.name,
        assignment=encode_assignment(assigned, read_version(protocol.metadata)),
    )


def assignment_by_name(assignment: Assignment, metadata: CoordinatorMetadata) -> dict[str, frozenset[int]]:
    """The assignment by name of topic, without topics that no longer exist."""
    named = ((metadata.topic_name(topic), partitions) for topic, partitions in assignment.items())
    return {name: partitions for name, partitions in named if name is not None}


def heartbeat(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation: int, now: Timestamps
) -> ErrorCode:
    """REBALANCE_IN_PROGRESS when the member must rejoin: to catch up with the group, to give up
    partitions, or to be assigned partitions that others have given up by now. Raises
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member, classic = _find_classic_member(group, member_id, group_instance_id)
    _check_generation(member, generation)
    schedule_session_timeout(group, member, classic.session_timeout_ms, now)
    if (
        member.epoch < group.epoch
        or member.state is MemberState.unrevoked_partitions
        or (member.state is MemberState.unreleased_partitions and not _waits_for_others(group, member))
    ):
        _schedule_join_timeout(group, member, now)
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        group.owners.get((topic, partition), member.id) != member.id
        for topic, partitions in group.targets.get(member.id, NO_PARTITIONS).items()
        for partition in partitions
    )


def find_leaving_members(group: ConsumerGroup, leaving: Sequence[LeavingMember]) -> tuple[list[ErrorCode], list[str]]:
    """One error code for each, in their order, and the ids of the members to remove."""
    codes: list[ErrorCode] = []
    found: dict[str, None] = {}
    for one in leaving:
        try:
            if one.group_instance_id is None:
                member = group.find_member(one.member_id)
            else:
                member_id = one.member_id or group.static_members.get(one.group_instance_id, "")
                member = group.find_static_member(member_id, one.group_instance_id)
        except KafkaError as reason:
            codes.append(reason.code)
        else:
            codes.append(ErrorCode.none)
            found[member.id] = None
    return codes, list(found)


def _find_classic_member(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    member = (
        group.find_member(member_id)
        if group_instance_id is None
        else group.find_static_member(member_id, group_instance_id)
    )
    if member.classic is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.id}.",
        )


def _schedule_join_timeout(group: ConsumerGroup, member: ConsumerMember, now: Timestamps) -> None:
    deadlines = group.deadlines_of(member.id)
    if deadlines.join is None:
        deadlines.join = now.loop_ms + member.rebalance_timeout_ms
        group.lower_next_deadline(deadlines.join)
