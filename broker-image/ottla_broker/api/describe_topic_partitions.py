"""DescribeTopicPartitions (75), version 0.

- Returns the partitions of topics in pages, as Metadata describes them, with eligible leader
  replicas (KIP-966). Topics are sorted by name; no topics requested means all.
- A page has at most the smaller of the request's limit and `max.request.partition.size.limit`
  partitions; the cursor says where the next one starts.
- If topics are requested, the cursor must name one of them and a partition that is not negative;
  otherwise all of them are INVALID_REQUEST.
"""

from collections.abc import Iterator
from typing import cast

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from ottla_broker.config import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ottla_broker.metadata.image import TopicImage
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.metadata.topic_names import is_valid_topic_name
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    flexible=0,
    rights=(
        Right(
            Operation.describe,
            ResourceType.topic,
            refused="TOPIC_AUTHORIZATION_FAILED; left out if all topics are requested",
        ),
    ),
)


@API.handler()
async def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    requested = sorted({topic.name for topic in request.topics} or visible_topics(ctx))
    start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
    if request.topics and start != ("", 0) and (start[0] not in requested or start[1] < 0):
        return DescribeTopicPartitionsResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(build_error_topic(ctx, name, ErrorCode.invalid_request) for name in requested),
            next_cursor=None,
        )
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    cursor = None
    remaining = max(1, min(request.response_partition_limit, ctx.broker.config(MAX_REQUEST_PARTITION_SIZE_LIMIT)))
    for name, topic, indexes in topics_from_cursor(ctx, requested, start):
        if not remaining and topic is not ErrorCode.topic_authorization_failed:
            # Also for a topic that does not exist: the next page has its error.
            cursor = Cursor(topic_name=TopicName(name), partition_index=i32(0))
            break
        if isinstance(topic, ErrorCode):
            topics.append(build_error_topic(ctx, name, topic))
            continue
        if len(indexes) > remaining:
            cursor = Cursor(topic_name=TopicName(name), partition_index=i32(indexes[remaining]))
        topics.append(describe_topic(ctx, topic, indexes[:remaining]))
        if cursor is not None:
            break
        remaining -= len(indexes)
    return DescribeTopicPartitionsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=cursor)


def visible_topics(ctx: RequestContext) -> set[str]:
    return {name for name in ctx.broker.image.topics if ctx.may(Operation.describe, Resource.topic(name))}


def topics_from_cursor(
    ctx: RequestContext, names: list[str], start: tuple[str, int]
) -> Iterator[tuple[str, TopicImage | ErrorCode, list[int]]]:
    """Yields each topic from the cursor on: its name, its image and its partitions, or its name, an
    error code and no partitions.
    """
    for name in names:
        if name < start[0]:
            continue
        topic = ctx.broker.image.topics.get(name)
        if not ctx.is_authorized(Operation.describe, Resource.topic(name)):
            yield name, ErrorCode.topic_authorization_failed, []
        elif not is_valid_topic_name(name):
            yield name, ErrorCode.invalid_topic_exception, []
        elif topic is None:
            yield name, ErrorCode.unknown_topic_or_partition, []
        else:
            yield name, topic, [p for p in sorted(topic.partitions) if name != start[0] or p >= start[1]]


def describe_topic(
    ctx: RequestContext, topic: TopicImage, partitions: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    alive = {broker.id for broker in ctx.broker.image.unfenced_brokers()}
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(describe_partition(topic.partitions[p], alive) for p in partitions),
        topic_authorized_operations=ctx.authorized_operations(Resource.topic(topic.name)),
    )


def build_error_topic(ctx: RequestContext, name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    may_describe = code not in (ErrorCode.topic_authorization_failed, ErrorCode.invalid_request)
    operations = ctx.authorized_operations(Resource.topic(name), requested=may_describe)
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=TopicName(name), topic_id=None, partitions=(), topic_authorized_operations=operations
    )


def describe_partition(state: PartitionRecord, alive: set[int]) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.leader_not_available if state.leader == NO_LEADER else ErrorCode.none,
        partition_index=cast(i32, state.partition),
        leader_id=cast(BrokerId, state.leader),
        leader_epoch=cast(i32, state.leader_epoch),
        replica_nodes=broker_ids(state.replicas),
        isr_nodes=broker_ids(state.isr),
        eligible_leader_replicas=broker_ids(state.eligible),
        last_known_elr=broker_ids(state.last_known),
        offline_replicas=broker_ids(tuple(broker for broker in state.replicas if broker not in alive)),
    )


def broker_ids(ids: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return cast("tuple[BrokerId, ...]", ids)
