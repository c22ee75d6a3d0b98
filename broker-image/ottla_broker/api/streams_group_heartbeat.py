"""StreamsGroupHeartbeat (88), version 0 (KIP-1071).

- One request for all of a Kafka Streams thread's life: it joins (epoch 0) with the application's
  topology, reports the tasks that it has, learns those that it is to have, and leaves (epoch −1).
- The broker computes the partitions of internal topics and creates them; then tasks are assigned.
  Statuses report missing topics, without an error.
- UNSUPPORTED_VERSION at level 0 of the feature `streams.version`. INVALID_REQUEST for what Kafka
  4.2 does not support either: static members, regular expressions, warm-up tasks and another
  topology.
- Needs Describe on the topics of the topology, and Create on the cluster or the topics for the
  internal ones: without it they stay missing, and the status says so.
"""

from collections.abc import Iterable
from typing import Any, cast

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest
from kio.schema.streams_group_heartbeat.v0.request import TaskIds as RequestTasks
from kio.schema.streams_group_heartbeat.v0.request import Topology as RequestTopology
from kio.schema.streams_group_heartbeat.v0.response import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32, u16

from ottla_broker.config import DEFAULT_REPLICATION_FACTOR
from ottla_broker.coordination.auto_topic_creation import auto_replication_factor
from ottla_broker.coordination.consumer_member import JOINING_EPOCH
from ottla_broker.coordination.streams_group import StreamsGroup, StreamsMember
from ottla_broker.coordination.streams_group_records import (
    CopartitionGroup,
    InternalTopic,
    KeyValue,
    StreamsTopologyValue,
    Subtopology,
    UserEndpoint,
)
from ottla_broker.coordination.streams_heartbeat import StreamsHeartbeat, StreamsHeartbeatResult
from ottla_broker.coordination.streams_tasks import TaskAssignment, Tasks
from ottla_broker.coordination.streams_topology import StreamsStatus, check_topology, internal_topic_names
from ottla_broker.metadata.features import STREAMS_VERSION
from ottla_broker.metadata.topic_names import validate_topic_name
from ottla_broker.requests.api import CHECK_NEXT, Api, Right, build_error_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE, to_duration, to_milliseconds
from ottla_broker.requests.group_requests import check_not_blank, client_host
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    versions=(0, 0),
    flexible=0,
    rights=(
        Right(Operation.read, ResourceType.group),
        Right(Operation.describe, ResourceType.topic, when="for the topics of the topology"),
        Right(Operation.create, ResourceType.cluster, when="to create internal topics", refused=CHECK_NEXT),
        Right(Operation.create, ResourceType.topic, when="to create internal topics", refused="a status"),
    ),
)

LOWEST_EPOCH = -2


@API.handler()
async def streams_group_heartbeat(
    ctx: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """With an error there are no statuses: Kafka 4.2 returns an empty list of them, not null."""
    try:
        return await respond(ctx, request)
    except KafkaError as reason:
        return build_error_response(StreamsGroupHeartbeatResponse, reason, status=())


async def respond(ctx: RequestContext, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    """The response to a heartbeat that is accepted. Raises KafkaError."""
    if ctx.broker.image.feature_level(STREAMS_VERSION) < 1:
        raise KafkaError(ErrorCode.unsupported_version, "streams.version is 0: group.protocol=streams is not enabled")
    ctx.check_authorized(Operation.read, Resource.group(request.group_id))
    topology = None if request.topology is None else build_topology(request.topology)
    if topology is not None:
        check_topics(ctx, topology)
    check_supported(request)
    check_request(request, topology)
    coordinator = ctx.broker.group_coordinator
    heartbeat = build_heartbeat(ctx, request, topology)
    result = await coordinator.streams_groups_of(request.group_id).heartbeat(request.group_id, heartbeat)
    problem = await create_internal_topics(ctx, result.missing_topics) if result.missing_topics else ""
    statuses = [
        Status(status_code=i8(int(code)), status_detail=f"{detail}; {problem}" if is_missing and problem else detail)
        for code, detail in result.statuses
        for is_missing in (code is StreamsStatus.missing_internal_topics,)
    ]
    endpoints = None
    if result.endpoints is not None:
        group = coordinator.streams_groups_of(request.group_id).find_group(request.group_id)
        endpoints = tuple(build_endpoint(ctx, group, member) for member in result.endpoints)
    return build_response(result, tuple(statuses), endpoints)


def build_response(
    result: StreamsHeartbeatResult, statuses: tuple[Status, ...], endpoints: tuple[EndpointToPartitions, ...] | None
) -> StreamsGroupHeartbeatResponse:
    tasks = (None, None, None) if result.tasks is None else tuple(map(build_tasks, result.tasks.kinds))
    return StreamsGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=result.member_id,
        member_epoch=cast(i32, result.member_epoch),
        heartbeat_interval=to_duration(result.heartbeat_interval_ms),
        acceptable_recovery_lag=i32(0),
        task_offset_interval=to_duration(0),
        status=statuses,
        active_tasks=tasks[0],
        standby_tasks=tasks[1],
        warmup_tasks=tasks[2],
        endpoint_information_epoch=cast(i32, result.endpoint_epoch),
        partitions_by_user_endpoint=endpoints,
    )


# -- the request -----------------------------------------------------------------------------------


def check_topics(ctx: RequestContext, topology: StreamsTopologyValue) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY, TOPIC_AUTHORIZATION_FAILED."""
    names = {name for part in topology.subtopologies for name in (*part.source_topics, *part.repartition_sink_topics)}
    names.update(internal_topic_names(topology))
    for name in sorted(names):
        try:
            validate_topic_name(name)
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.streams_invalid_topology, f"Topic name {name} is invalid: {error.message}"
            ) from error
    for name in sorted(names):
        ctx.check_authorized(Operation.describe, Resource.topic(name))


def check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST for what Kafka 4.2 does not support."""
    unsupported = (
        (request.instance_id is not None, "Static membership is not yet supported."),
        (request.task_offsets is not None, "TaskOffsets are not supported yet."),
        (request.task_end_offsets is not None, "TaskEndOffsets are not supported yet."),
        (bool(request.warmup_tasks), "WarmupTasks are not supported yet."),
        (
            request.topology is not None and any(part.source_topic_regex for part in request.topology.subtopologies),
            "Regular expressions for source topics are not supported yet.",
        ),
    )
    raise_first(unsupported)


def check_request(request: StreamsGroupHeartbeatRequest, topology: StreamsTopologyValue | None) -> None:
    """Raises INVALID_REQUEST and STREAMS_INVALID_TOPOLOGY, in Kafka's order."""
    epoch = request.member_epoch
    check_not_blank("MemberId", request.member_id)
    check_not_blank("GroupId", request.group_id)
    check_not_blank("RackId", request.rack_id)
    if epoch == JOINING_EPOCH:
        raise_first(
            (
                (
                    to_milliseconds(request.rebalance_timeout) == -1,
                    "RebalanceTimeoutMs must be provided in first request.",
                ),
                (bool(request.active_tasks), "ActiveTasks must be empty when (re-)joining."),
                (bool(request.standby_tasks), "StandbyTasks must be empty when (re-)joining."),
                (bool(request.warmup_tasks), "WarmupTasks must be empty when (re-)joining."),
                (topology is None, "Topology must be non-null when (re-)joining."),
            )
        )
        if topology is not None:
            check_topology(topology)
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    some_are_missing = any(one is None for one in kinds) and any(one is not None for one in kinds)
    raise_first(
        (
            (epoch == LOWEST_EPOCH, "InstanceId can't be null."),
            (epoch < LOWEST_EPOCH, f"MemberEpoch is {epoch}, but must be greater than or equal to -2."),
            (some_are_missing, "If one task-type is non-null, all must be non-null."),
            (epoch != JOINING_EPOCH and topology is not None, "Topology can only be provided when (re-)joining."),
        )
    )


def raise_first(problems: Iterable[tuple[bool, str]]) -> None:
    """Raises INVALID_REQUEST with the text of the first problem that exists."""
    for exists, text in problems:
        if exists:
            raise KafkaError(ErrorCode.invalid_request, text)


def build_heartbeat(
    ctx: RequestContext, request: StreamsGroupHeartbeatRequest, topology: StreamsTopologyValue | None
) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    owned = None
    if request.active_tasks is not None:
        owned = TaskAssignment(
            read_tasks(request.active_tasks),
            read_tasks(request.standby_tasks or ()),
            read_tasks(request.warmup_tasks or ()),
        )
    return StreamsHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_milliseconds(request.rebalance_timeout),
        topology=topology,
        owned=owned,
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, int(endpoint.port)),
        client_tags=None if tags is None else tuple(sorted(KeyValue(one.key, one.value) for one in tags)),
        shuts_down_application=request.shutdown_application,
        endpoint_epoch=int(request.endpoint_information_epoch),
        client_id=ctx.client_id or "",
        client_host=client_host(ctx),
    )


def read_tasks(tasks: tuple[RequestTasks, ...]) -> Tasks:
    return {one.subtopology_id: frozenset(map(int, one.partitions)) for one in tasks if one.partitions}


def build_topology(topology: RequestTopology) -> StreamsTopologyValue:
    """Sorted, as Kafka writes it, so that members' topologies are equal."""
    return StreamsTopologyValue(
        int(topology.epoch),
        tuple(
            Subtopology(
                part.subtopology_id,
                tuple(map(str, part.source_topics)),
                tuple(part.source_topic_regex),
                tuple(sorted(map(build_internal_topic, part.state_changelog_topics))),
                tuple(map(str, part.repartition_sink_topics)),
                tuple(map(build_internal_topic, part.repartition_source_topics)),
                tuple(
                    CopartitionGroup(
                        tuple(map(int, group.source_topics)),
                        tuple(map(int, group.source_topic_regex)),
                        tuple(map(int, group.repartition_source_topics)),
                    )
                    for group in part.copartition_groups
                ),
            )
            for part in sorted(topology.subtopologies, key=lambda part: part.subtopology_id)
        ),
    )


def build_internal_topic(topic: Any) -> InternalTopic:
    configs = tuple(sorted(KeyValue(one.key, one.value) for one in topic.topic_configs))
    return InternalTopic(str(topic.name), int(topic.partitions), int(topic.replication_factor), configs)


# -- internal topics and endpoints -----------------------------------------------------------------


async def create_internal_topics(ctx: RequestContext, missing: tuple[InternalTopic, ...]) -> str:
    """Has the controller create the topics. Returns why some were not created, or an empty text.
    Members learn with their next heartbeats that the topics exist.
    """
    if not ctx.may(Operation.create, CLUSTER):
        refused = [one.name for one in missing if not ctx.is_authorized(Operation.create, Resource.topic(one.name))]
        if refused:
            return f"Unauthorized to CREATE on topics {', '.join(refused)}."
    default_factor = auto_replication_factor(ctx.broker.config, ctx.broker.image, DEFAULT_REPLICATION_FACTOR)
    topics = tuple(
        CreatableTopic(
            name=TopicName(one.name),
            num_partitions=cast(i32, one.partitions),
            replication_factor=cast(i16, one.replication_factor if one.replication_factor > 0 else default_factor),
            assignments=(),
            configs=tuple(CreatableTopicConfig(name=it.key, value=it.value) for it in one.configs),
        )
        for one in missing
    )
    try:
        response: CreateTopicsResponse = await ctx.broker.controller_channel.send_request(
            CreateTopicsRequest(topics=topics)
        )
    except KafkaError as error:
        return f"Creation failed: {error}."
    failed = [
        f"{one.name} ({one.error_message or one.error_code.name})"
        for one in response.topics
        if one.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists)
    ]
    return f"Creation failed: {', '.join(failed)}." if failed else ""


def build_tasks(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=part, partitions=tuple(cast(i32, it) for it in sorted(partitions)))
        for part, partitions in sorted(tasks.items())
    )


def build_endpoint(ctx: RequestContext, group: StreamsGroup, member: StreamsMember) -> EndpointToPartitions:
    assert member.user_endpoint is not None
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=member.user_endpoint.host, port=cast(u16, member.user_endpoint.port)),
        active_partitions=topic_partitions(ctx, group, member.assigned.active),
        standby_partitions=topic_partitions(ctx, group, member.assigned.standby),
    )


def topic_partitions(ctx: RequestContext, group: StreamsGroup, tasks: Tasks) -> tuple[TopicPartition, ...]:
    """The partitions of source and repartition topics that tasks read."""
    found = []
    for part in group.topology.subtopologies if group.topology else ():
        for name in (*part.source_topics, *(topic.name for topic in part.repartition_source_topics)):
            topic = ctx.broker.image.topics.get(name)
            partitions = sorted(tasks.get(part.subtopology_id, ()))
            if topic is not None and (read := [it for it in partitions if it in topic.partitions]):
                found.append(TopicPartition(topic=TopicName(name), partitions=tuple(cast(i32, it) for it in read)))
    return tuple(found)
