"""OffsetCommit (8), versions 2–10.

- Stores offsets of a group, and responds when they are replicated. They come from a member of the
  current generation or, while the group has no members, from any client that names no generation.
- A missing topic or partition is UNKNOWN_TOPIC_OR_PARTITION (by id: UNKNOWN_TOPIC_ID); the others
  are stored.
- Metadata longer than `offset.metadata.max.bytes` is OFFSET_METADATA_TOO_LARGE.
- A commit extends the session of its member in a classic group.
- v2–4 may name a retention time; v6 adds leader epochs; v7 static members; v9 returns
  GROUP_ID_NOT_FOUND where older versions return ILLEGAL_GENERATION; v10 has topics by id (KIP-848).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from kio.schema.offset_commit.v4.request import OffsetCommitRequest as RequestWithRetention
from kio.schema.offset_commit.v4.response import OffsetCommitResponse as ResponseWithRetention
from kio.schema.offset_commit.v9.request import OffsetCommitRequest as RequestByName
from kio.schema.offset_commit.v9.request import OffsetCommitRequestPartition as RequestPartitionByName
from kio.schema.offset_commit.v9.request import OffsetCommitRequestTopic as RequestTopicByName
from kio.schema.offset_commit.v9.response import OffsetCommitResponse as ResponseByName
from kio.schema.offset_commit.v9.response import OffsetCommitResponsePartition as PartitionByName
from kio.schema.offset_commit.v9.response import OffsetCommitResponseTopic as TopicByName
from kio.schema.offset_commit.v10.request import OffsetCommitRequest as RequestById
from kio.schema.offset_commit.v10.request import OffsetCommitRequestPartition as RequestPartitionById
from kio.schema.offset_commit.v10.request import OffsetCommitRequestTopic as RequestTopicById
from kio.schema.offset_commit.v10.response import OffsetCommitResponse as ResponseById
from kio.schema.offset_commit.v10.response import OffsetCommitResponsePartition as PartitionById
from kio.schema.offset_commit.v10.response import OffsetCommitResponseTopic as TopicById

from ottla_broker.coordination.records import OffsetCommit
from ottla_broker.metadata.image import TopicImage
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE, to_milliseconds
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.OFFSET_COMMIT,
    versions=(2, 10),
    flexible=8,
    rights=(
        Right(Operation.read, ResourceType.group),
        Right(Operation.read, ResourceType.topic),
    ),
)

GROUP_NOT_FOUND_SINCE = 9
NO_EXPIRY = -1


@API.handler(2, 4)
async def commit_with_retention(ctx: RequestContext, request: RequestWithRetention) -> ResponseWithRetention:
    retention_ms = to_milliseconds(request.retention_time)
    expire_ms = NO_EXPIRY if retention_ms < 0 else ctx.broker.runtime.now_ms() + retention_ms
    answer = await commit_with_expiry(ctx, convert_message(request, RequestByName), expire_ms)
    return cast(ResponseWithRetention, convert_message(answer, ResponseWithRetention))


@API.handler(5, 9)
async def commit_by_name(ctx: RequestContext, request: RequestByName) -> ResponseByName:
    return await commit_with_expiry(ctx, request, NO_EXPIRY)


async def commit_with_expiry(ctx: RequestContext, request: RequestByName, expire_ms: int) -> ResponseByName:
    codes = iter(await commit_offsets(ctx, request, partial(find_by_name, ctx), expire_ms))
    return ResponseByName(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicByName(
                name=topic.name,
                partitions=tuple(
                    PartitionByName(partition_index=p.partition_index, error_code=next(codes)) for p in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


@API.handler(10, 10)
async def commit_by_id(ctx: RequestContext, request: RequestById) -> ResponseById:
    codes = iter(await commit_offsets(ctx, request, partial(find_by_id, ctx), NO_EXPIRY))
    return ResponseById(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicById(
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionById(partition_index=p.partition_index, error_code=next(codes)) for p in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def find_by_name(ctx: RequestContext, requested: RequestTopicByName) -> TopicImage:
    """Raises TOPIC_AUTHORIZATION_FAILED, also for a topic that does not exist, and
    UNKNOWN_TOPIC_OR_PARTITION."""
    ctx.check_authorized(Operation.read, Resource.topic(requested.name))
    topic = ctx.broker.image.topics.get(requested.name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    return topic


def find_by_id(ctx: RequestContext, requested: RequestTopicById) -> TopicImage:
    """Raises UNKNOWN_TOPIC_ID and TOPIC_AUTHORIZATION_FAILED."""
    topic = None if requested.topic_id is None else ctx.broker.image.topic_by_id(requested.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    ctx.check_authorized(Operation.read, Resource.topic(topic.name))
    return topic


async def commit_offsets(
    ctx: RequestContext, request: RequestByName | RequestById, find: Callable[[Any], TopicImage], expire_ms: int
) -> list[ErrorCode]:
    """Returns one error code for each requested partition, in order. `find`: the topic that the
    request names; it raises the error of all its partitions.
    """
    requested: Sequence[RequestTopicByName | RequestTopicById] = request.topics
    if not ctx.is_authorized(Operation.read, Resource.group(request.group_id)):
        return [ErrorCode.group_authorization_failed for one in requested for _ in one.partitions]
    now_ms = ctx.broker.runtime.now_ms()
    codes: list[ErrorCode] = []
    commits: dict[tuple[str, int], OffsetCommit] = {}
    for one in requested:
        try:
            topic = find(one)
        except KafkaError as reason:
            codes += [reason.code] * len(one.partitions)
            continue
        for p in one.partitions:
            code = find_error(ctx, topic, p)
            if code is ErrorCode.none:
                commits[topic.name, p.partition_index] = OffsetCommit(
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.committed_metadata or "",
                    now_ms,
                    expire_ms,
                    topic.id,
                )
            codes.append(code)
    try:
        await ctx.broker.group_coordinator.commit_offsets(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            commits,
            ctx.version,
        )
    except KafkaError as reason:
        error = reason.code
        if error is ErrorCode.group_id_not_found and ctx.version < GROUP_NOT_FOUND_SINCE:
            error = ErrorCode.illegal_generation
        codes = [error if code is ErrorCode.none else code for code in codes]
    return codes


def find_error(
    ctx: RequestContext, topic: TopicImage, requested: RequestPartitionByName | RequestPartitionById
) -> ErrorCode:
    """The error for which the commit of a partition is not stored; `none` if it is valid."""
    if requested.partition_index not in topic.partitions:
        return ErrorCode.unknown_topic_or_partition
    if len(requested.committed_metadata or "") > ctx.broker.group_coordinator.config.offset_metadata_max_bytes:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none
