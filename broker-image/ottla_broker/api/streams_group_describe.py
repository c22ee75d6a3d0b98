"""StreamsGroupDescribe (89), version 0 (KIP-1071).

- Describes streams groups: epochs, topology, and members with their current and target tasks.
- A missing group, and one of another protocol, is GROUP_ID_NOT_FOUND with a message.
- A group with a topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, without
  members. UNSUPPORTED_VERSION at level 0 of the feature `streams.version`.
"""

from typing import cast

from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i16, i32, u16

from ottla_broker.coordination.streams_group import StreamsGroup, StreamsMember
from ottla_broker.coordination.streams_group_records import InternalTopic
from ottla_broker.coordination.streams_tasks import NOTHING_ASSIGNED, TaskAssignment, Tasks
from ottla_broker.metadata.features import STREAMS_VERSION
from ottla_broker.requests.api import Api, Right, build_error_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.group_requests import check_may_describe
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    versions=(0, 0),
    flexible=0,
    rights=(
        Right(Operation.describe, ResourceType.group),
        Right(Operation.describe, ResourceType.topic, when="of all topics of the topology"),
    ),
)


@API.handler()
async def streams_group_describe(
    ctx: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(describe_group(ctx, group, request.include_authorized_operations) for group in request.group_ids),
    )


def describe_group(ctx: RequestContext, group_id: GroupId, include_operations: bool) -> DescribedGroup:
    resource = Resource.group(group_id)
    try:
        if ctx.broker.image.feature_level(STREAMS_VERSION) < 1:
            raise KafkaError(ErrorCode.unsupported_version)
        ctx.check_authorized(Operation.describe, resource)
        group = ctx.broker.group_coordinator.streams_groups_of(group_id).find_group(group_id)
        check_topics_authorized(ctx, group)
    except KafkaError as reason:
        return build_error_response(DescribedGroup, reason, group_id=group_id)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        group_epoch=cast(i32, group.epoch),
        assignment_epoch=cast(i32, group.assignment_epoch),
        topology=describe_topology(group),
        members=tuple(describe_member(group, member) for member in group.members.values()),
        authorized_operations=ctx.authorized_operations(resource, requested=include_operations),
    )


def check_topics_authorized(ctx: RequestContext, group: StreamsGroup) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED."""
    names = group.input_topics() | {
        topic.name
        for part in (group.topology.subtopologies if group.topology else ())
        for topic in part.changelog_topics
    }
    check_may_describe(ctx, names, "The described group uses topics that the client is not authorized to describe.")


def describe_topology(group: StreamsGroup) -> Topology | None:
    """The group's topology, with the partition counts of internal topics once it is ready, as in
    Kafka.
    """
    if group.topology is None:
        return None
    counts = group.configured.task_counts if group.configured is not None and group.configured.is_ready else {}
    return Topology(
        epoch=cast(i32, group.topology.epoch),
        subtopologies=tuple(
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=tuple(map(TopicName, sorted(part.source_topics))),
                repartition_sink_topics=tuple(map(TopicName, sorted(part.repartition_sink_topics))),
                state_changelog_topics=tuple(
                    describe_internal_topic(topic, counts.get(part.subtopology_id, 0))
                    for topic in part.changelog_topics
                ),
                repartition_source_topics=tuple(
                    describe_internal_topic(topic, counts.get(part.subtopology_id, 0))
                    for topic in part.repartition_source_topics
                ),
            )
            for part in group.topology.subtopologies
        ),
    )


def describe_internal_topic(topic: InternalTopic, partitions: int) -> TopicInfo:
    return TopicInfo(
        name=TopicName(topic.name),
        partitions=cast(i32, topic.partitions or partitions),
        replication_factor=cast(i16, topic.replication_factor),
        topic_configs=tuple(KeyValue(key=one.key, value=one.value) for one in topic.configs),
    )


def describe_member(group: StreamsGroup, member: StreamsMember) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member_id=member.id,
        member_epoch=cast(i32, member.epoch),
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=cast(i32, member.topology_epoch),
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=cast(u16, endpoint.port)),
        client_tags=tuple(KeyValue(key=one.key, value=one.value) for one in member.client_tags),
        task_offsets=(),
        task_end_offsets=(),
        assignment=describe_assignment(member.assigned),
        target_assignment=describe_assignment(group.targets.get(member.id, NOTHING_ASSIGNED)),
        is_classic=False,
    )


def describe_assignment(tasks: TaskAssignment) -> Assignment:
    active, standby, warmup = map(describe_tasks, tasks.kinds)
    return Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)


def describe_tasks(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=part, partitions=tuple(cast(i32, it) for it in sorted(partitions)))
        for part, partitions in sorted(tasks.items())
    )
