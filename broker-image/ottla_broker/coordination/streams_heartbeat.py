"""The effect of a StreamsGroupHeartbeat request on its streams group (KIP-1071). No I/O.

A heartbeat creates or updates its member, checks the topology against the existing topics, begins a
new group epoch if any of these has changed, computes the target assignment of a new epoch, and
moves its own member one step towards the target.
"""

import logging
from typing import Final

import msgspec
from msgspec.structs import replace

from ottla_broker.coordination import streams_change
from ottla_broker.coordination.assignment_interval import may_assign
from ottla_broker.coordination.consumer_member import JOINING_EPOCH
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import StreamsGroupConfig
from ottla_broker.coordination.group_type import STREAMS
from ottla_broker.coordination.member_deadlines import schedule_revocation_timeout, schedule_session_timeout
from ottla_broker.coordination.protocol_errors import group_full_error, member_fenced_error
from ottla_broker.coordination.streams_change import StreamsChange
from ottla_broker.coordination.streams_group import StreamsGroup, StreamsMember
from ottla_broker.coordination.streams_group_records import (
    InternalTopic,
    KeyValue,
    StreamsEpochValue,
    StreamsGroupKey,
    StreamsTargetEpochKey,
    StreamsTargetEpochValue,
    StreamsTopologyKey,
    StreamsTopologyValue,
    UserEndpoint,
)
from ottla_broker.coordination.streams_tasks import NOTHING_ASSIGNED, TaskAssignment
from ottla_broker.coordination.streams_topology import (
    ConfiguredTopology,
    Status,
    StreamsStatus,
    check_copartition_groups,
    configure_topology,
    internal_topic_names,
)
from ottla_broker.coordination.task_assignor import StreamsAssignee, assign_tasks
from ottla_broker.coordination.task_reconciliation import reconcile_streams_member
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

WAITING_EPOCH: Final = 1
"""Epoch of members before the first assignment, as in Kafka 4.2."""
FIRST_EPOCH: Final = 2
"""The first epoch of a group, which must be larger than WAITING_EPOCH."""


class StreamsHeartbeat(msgspec.Struct, frozen=True):
    """A member's request. A field that is None, or a timeout of −1, has not changed since its last
    heartbeat."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: StreamsTopologyValue | None = None
    owned: TaskAssignment | None = None
    process_id: str | None = None
    user_endpoint: UserEndpoint | None = None
    client_tags: tuple[KeyValue, ...] | None = None
    shuts_down_application: bool = False
    endpoint_epoch: int = -1
    client_id: str = ""
    client_host: str = ""


class StreamsHeartbeatResult(msgspec.Struct, frozen=True):
    """`tasks`: those that the member may run; None when they have not changed. `missing_topics`:
    internal topics for the caller to create. `endpoints`: the members that serve queries; None when
    the client has them already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    tasks: TaskAssignment | None = None
    statuses: tuple[Status, ...] = ()
    missing_topics: tuple[InternalTopic, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[StreamsMember, ...] | None = None


def heartbeat(
    change: StreamsChange,
    request: StreamsHeartbeat,
    metadata: CoordinatorMetadata,
    config: StreamsGroupConfig,
    now: Timestamps,
) -> StreamsHeartbeatResult:
    """Adds the effect of the request to `change`, and returns the member's result. Raises
    GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, INVALID_REQUEST,
    STREAMS_INVALID_TOPOLOGY.
    """
    group = change.group
    was_empty = group.is_empty
    before = _find_or_create_member(group, request, config)
    member = _with_sent_fields(before, request)
    has_changed = member.metadata_value() != before.metadata_value() or member.id not in group.members
    if has_changed:
        streams_change.write_member(change, member)
    topology = _update_topology(change, request)
    statuses = _find_member_statuses(member, topology)
    configured, metadata_hash = _configure(group, topology, metadata)
    if request.owned is not None and configured.is_ready:
        configured.check_tasks(request.owned.all_tasks())
    validated = topology.epoch if configured.is_ready else -1
    configs = config.assignment_configs()
    has_changed |= metadata_hash != group.metadata_hash or validated != group.validated_topology_epoch
    if has_changed or configs != group.assignment_configs or group.epoch == 0:
        epoch = max(FIRST_EPOCH, group.epoch + 1)
        change.write(StreamsGroupKey(group.id), StreamsEpochValue(epoch, metadata_hash, validated, configs))
        logger.info("streams group %s: epoch %d begins", group.id, epoch)
    if was_empty and config.initial_rebalance_delay_ms:
        group.delayed_until_ms = now.loop_ms + config.initial_rebalance_delay_ms
    target_epoch, target = group.assignment_epoch, group.targets.get(member.id, NOTHING_ASSIGNED)
    if group.epoch > group.assignment_epoch:
        if group.delayed_until_ms is not None and now.loop_ms < group.delayed_until_ms:
            target_epoch, target = max(WAITING_EPOCH, group.assignment_epoch), NOTHING_ASSIGNED
            detail = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(Status(StreamsStatus.assignment_delayed, detail))
        elif not may_assign(group.assigned_ms, config.assignment_interval_ms, now.loop_ms):
            detail = "Assignment delayed due to the configured assignment interval."
            statuses.append(Status(StreamsStatus.assignment_delayed, detail))
        else:
            group.delayed_until_ms, group.assigned_ms = None, now.loop_ms
            compute_target_assignment(change, configured, config)
            target_epoch, target = group.assignment_epoch, group.targets.get(member.id, NOTHING_ASSIGNED)
    after = _reconcile(change, group.members[member.id], target_epoch, target, request.owned)
    schedule_session_timeout(group, after, config.session_timeout_ms, now)
    schedule_revocation_timeout(group, after, now)
    if request.shuts_down_application:
        group.shutdown_requested_by = member.id
    has_new_tasks = request.member_epoch == JOINING_EPOCH or after.assigned != before.assigned
    if has_new_tasks and after.user_endpoint is not None:
        group.endpoint_epoch += 1
    # A member that has lost a response reports other tasks than its assignment. It gets the
    # assignment again, which Kafka 4.2 does not repeat.
    includes_assignment = has_new_tasks or request.owned not in (None, after.assigned)
    statuses += _find_group_statuses(group, configured)
    return StreamsHeartbeatResult(
        after.id,
        after.epoch,
        config.heartbeat_interval_ms,
        after.assigned if includes_assignment else None,
        tuple(statuses),
        configured.missing,
        group.endpoint_epoch,
        None
        if request.endpoint_epoch == group.endpoint_epoch
        else tuple(one for one in group.members.values() if one.user_endpoint is not None),
    )


# -- the member ------------------------------------------------------------------------------------


def _find_or_create_member(group: StreamsGroup, request: StreamsHeartbeat, config: StreamsGroupConfig) -> StreamsMember:
    if request.member_epoch != JOINING_EPOCH:
        member = group.find_member(request.member_id)
        _check_epoch(member, request)
        return member
    if (known := group.members.get(request.member_id)) is not None:
        return known
    if len(group.members) >= config.max_size:
        raise group_full_error(STREAMS, config.max_size)
    logger.info("streams group %s: member %s joins", group.id, request.member_id)
    return StreamsMember(request.member_id)


def _check_epoch(member: StreamsMember, request: StreamsHeartbeat) -> None:
    """Raises FENCED_MEMBER_EPOCH for an epoch that the member cannot be in. The previous one is
    accepted from a member that may have lost the response which raised it.
    """
    epoch = request.member_epoch
    has_lost_response = (
        epoch == member.previous_epoch and request.owned is not None and request.owned.is_within(member.assigned)
    )
    if epoch == member.epoch or (epoch < member.epoch and has_lost_response):
        return
    raise member_fenced_error(STREAMS, epoch, member.epoch)


def _with_sent_fields(member: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    return replace(
        member,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=request.process_id if request.process_id is not None else member.process_id,
        user_endpoint=request.user_endpoint if request.user_endpoint is not None else member.user_endpoint,
        client_tags=request.client_tags if request.client_tags is not None else member.client_tags,
        client_id=request.client_id,
        client_host=request.client_host,
    )


# -- the topology ----------------------------------------------------------------------------------


def _update_topology(change: StreamsChange, request: StreamsHeartbeat) -> StreamsTopologyValue:
    """The group's topology, which the first member sets. Raises INVALID_REQUEST for a topology that
    would change it, as in Kafka 4.2, and if no member has sent one. An older topology is ignored:
    the response has the status STALE_TOPOLOGY."""
    group, sent = change.group, request.topology
    if group.topology is None:
        if sent is None:
            raise KafkaError(ErrorCode.invalid_request, "The group has no topology yet: a member must join with one.")
        check_copartition_groups(sent)
        change.write(StreamsTopologyKey(group.id), sent)
        logger.info("streams group %s: member %s set the topology of epoch %d", group.id, request.member_id, sent.epoch)
        return sent
    if sent is not None and sent.epoch >= group.topology.epoch and sent != group.topology:
        raise KafkaError(ErrorCode.invalid_request, "Topology updates are not supported yet.")
    return group.topology


def _find_member_statuses(member: StreamsMember, topology: StreamsTopologyValue) -> list[Status]:
    if member.topology_epoch >= topology.epoch:
        return []
    detail = (
        f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}."
    )
    return [Status(StreamsStatus.stale_topology, detail)]


def _configure(
    group: StreamsGroup, topology: StreamsTopologyValue, metadata: CoordinatorMetadata
) -> tuple[ConfiguredTopology, int]:
    """The configured topology, and the hash of the topics that it was configured with. Configures
    it again when any topic has changed.
    """
    if group.configured is None or group.metadata_version != metadata.version:
        before = group.configured
        group.configured = configure_topology(topology, metadata.partition_count_of)
        group.metadata_version = metadata.version
        if group.configured.problem and (before is None or before.problem != group.configured.problem):
            logger.info("streams group %s: %s", group.id, group.configured.problem.detail)
    names = {name for part in topology.subtopologies for name in part.source_topics}
    return group.configured, metadata.hash_topics(names.union(internal_topic_names(topology)))


def _find_group_statuses(group: StreamsGroup, configured: ConfiguredTopology) -> list[Status]:
    found = [] if configured.problem is None else [configured.problem]
    if (member_id := group.shutdown_requested_by) is not None:
        detail = (
            f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
            "application."
        )
        found.append(Status(StreamsStatus.shutdown_application, detail))
    return found


# -- assignment ------------------------------------------------------------------------------------


def compute_target_assignment(
    change: StreamsChange, configured: ConfiguredTopology, config: StreamsGroupConfig
) -> None:
    """Writes the target assignments that change, then the assignment epoch. Nothing is assigned
    while the topology is not ready."""
    group = change.group
    members = {
        one.id: StreamsAssignee(one.process_id, group.targets.get(one.id, NOTHING_ASSIGNED))
        for one in group.members.values()
    }
    if configured.is_ready:
        targets = assign_tasks(members, configured.task_counts, configured.stateful, config.num_standby_replicas)
    else:
        targets = dict.fromkeys(members, NOTHING_ASSIGNED)
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            streams_change.write_target(change, member_id, target)
    change.write(StreamsTargetEpochKey(group.id), StreamsTargetEpochValue(group.epoch))
    logger.info("streams group %s: target assignment of epoch %d computed", group.id, group.epoch)


def _reconcile(
    change: StreamsChange,
    member: StreamsMember,
    target_epoch: int,
    target: TaskAssignment,
    owned: TaskAssignment | None,
) -> StreamsMember:
    group = change.group
    if member.is_reconciled_to(target_epoch):
        return member
    after = reconcile_streams_member(
        member,
        target=target,
        target_epoch=target_epoch,
        active_owners=group.active_owners,
        held_by_process=group.tasks_held_by_process_peers(member),
        owned=owned,
    )
    if after is not member:
        streams_change.write_current(change, after)
    return after


# -- leaving ---------------------------------------------------------------------------------------


def fence_members(change: StreamsChange, member_ids: list[str]) -> None:
    """Removes members and begins a new group epoch. Their tasks can be assigned at once."""
    group = change.group
    for member_id in member_ids:
        streams_change.remove_member(change, member_id)
    value = StreamsEpochValue(
        group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
    )
    change.write(StreamsGroupKey(group.id), value)
    if group.is_empty:
        group.assigned_ms = None
