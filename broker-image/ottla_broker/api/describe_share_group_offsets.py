"""DescribeShareGroupOffsets (90), versions 0–1 (KIP-932).

- Returns the start offset of a share group's partitions, from the share coordinators; −1 for a
  partition that the group has not read. If the request names no topics, those of all partitions
  that the group has read.
- A missing group, one of another kind and a missing topic are no errors, as in Kafka.
- Topics that the client may not describe are left out if all topics are requested, and are
  TOPIC_AUTHORIZATION_FAILED if they are requested by name.
- v1 adds the lag: the number of records at or above the start offset that are neither acknowledged
  nor archived; −1 if it is unknown.
"""

import asyncio
from typing import cast

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.share_requests import check_share_groups_served, share_groups_of
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.share_groups.share_lag import share_lag
from ottla_broker.share_groups.share_state import NO_START_OFFSET, SharePartitionKey, ShareState
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    versions=(0, 1),
    flexible=0,
    rights=(
        Right(Operation.describe, ResourceType.group),
        Right(Operation.describe, ResourceType.topic),
    ),
)

LAG_SINCE = 1
UNKNOWN_LAG = -1
NO_GROUP_ERRORS = frozenset({ErrorCode.group_id_not_found, ErrorCode.invalid_group_id})


@API.handler()
async def describe_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, groups=tuple([await describe_group(ctx, requested) for requested in request.groups])
    )


async def describe_group(
    ctx: RequestContext, requested: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error = NO_ERROR
    try:
        check_share_groups_served(ctx)
        ctx.check_authorized(Operation.describe, Resource.group(requested.group_id))
        topics = await describe_topics(ctx, requested)
    except KafkaError as reason:
        error = reason
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=requested.group_id, topics=tuple(topics), error_code=error.code, error_message=error.message
    )


async def describe_topics(
    ctx: RequestContext, requested: DescribeShareGroupOffsetsRequestGroup
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    if requested.topics is None:
        try:
            group = ctx.broker.group_coordinator.share_groups_of(requested.group_id).find_group(requested.group_id)
        except KafkaError as reason:
            if reason.code in NO_GROUP_ERRORS:
                return []
            raise
        return [await describe_topic(ctx, group.id, *topic) for topic in find_described_topics(ctx, group)]
    named = {topic.topic_name: tuple(int(at) for at in topic.partitions) for topic in requested.topics}
    allowed = [name for name in named if ctx.is_authorized(Operation.describe, Resource.topic(name))]
    error = KafkaError(ErrorCode.topic_authorization_failed)
    found = [await describe_topic(ctx, requested.group_id, name, named[name]) for name in allowed]
    return found + [build_error_topic(name, named[name], error) for name in named if name not in allowed]


def find_described_topics(ctx: RequestContext, group: ShareGroup) -> list[tuple[TopicName, tuple[int, ...]]]:
    """The topics that the group has read, as far as the client may describe them, with their
    partitions.
    """
    names = ctx.broker.image.topic_names
    return [
        (TopicName(names[topic_id]), tuple(sorted(topic.partitions)))
        for topic_id, topic in group.initialized.items()
        if topic_id in names and ctx.may(Operation.describe, Resource.topic(names[topic_id]))
    ]


async def describe_topic(
    ctx: RequestContext, group_id: str, name: TopicName, partitions: tuple[int, ...]
) -> DescribeShareGroupOffsetsResponseTopic:
    found = ctx.broker.image.topics.get(name)
    if found is None:
        return build_error_topic(name, partitions, NO_ERROR)
    results = await asyncio.gather(
        *(describe_partition(ctx, SharePartitionKey(group_id, found.id, at), name) for at in partitions)
    )
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=found.id, partitions=tuple(results))


def build_error_topic(
    name: TopicName, partitions: tuple[int, ...], error: KafkaError
) -> DescribeShareGroupOffsetsResponseTopic:
    results = tuple(build_partition(at, None, UNKNOWN_LAG, error) for at in partitions)
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=NO_UUID, partitions=results)


async def describe_partition(
    ctx: RequestContext, key: SharePartitionKey, name: str
) -> DescribeShareGroupOffsetsResponsePartition:
    broker = ctx.broker
    topic = broker.image.topics.get(name)
    if topic is None or key.partition not in topic.partitions:
        return build_partition(key.partition, None, UNKNOWN_LAG, KafkaError(ErrorCode.unknown_topic_or_partition))
    try:
        state, lag = await share_groups_of(ctx).states.find(key), UNKNOWN_LAG
        if ctx.version >= LAG_SINCE and state is not None:
            lag = await share_lag(share_groups_of(ctx), broker.partitions, broker.image, name, key.partition, state)
    except KafkaError as reason:
        return build_partition(key.partition, None, UNKNOWN_LAG, reason)
    return build_partition(key.partition, state, lag, NO_ERROR)


def build_partition(
    partition: int, state: ShareState | None, lag: int, error: KafkaError
) -> DescribeShareGroupOffsetsResponsePartition:
    """`state`: None with an error, and for a partition that the group has not read."""
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=cast(i32, partition),
        start_offset=cast(i64, NO_START_OFFSET if state is None else state.start_offset),
        leader_epoch=cast(i32, 0 if state is None else state.leader_epoch),
        lag=cast(i64, lag),
        error_code=error.code,
        error_message=error.message,
    )
