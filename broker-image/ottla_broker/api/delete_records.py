"""DeleteRecords (21), versions 0–2.

- Raises a partition's log start offset to the requested offset, or for −1 to the high watermark.
- Answered with the low watermark, the lowest log start offset of the replicas on live brokers, once
  it is high enough. After the timeout, which is one for all partitions: REQUEST_TIMED_OUT, and the
  records are deleted nevertheless.
- Above the high watermark: OFFSET_OUT_OF_RANGE. Below the log start offset nothing changes.
  Compacted-only topics and mirrored topics are POLICY_VIOLATION, internal topics
  INVALID_TOPIC_EXCEPTION.
- If other clusters' topics are appended to the topic, their copied offsets are first recorded again
  above the new start (`mirroring.appended_retention`).
- v1 differs in throttling only; v2 is flexible.
"""

import asyncio
from typing import cast

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.static.primitive import i64

from ottla_broker.metadata.mirror_plans import read_only_message
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2, rights=(Right(Operation.delete, ResourceType.topic),))

TO_HIGH_WATERMARK = -1
NO_WATERMARK = -1


@API.handler()
async def delete_records(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    until_s = asyncio.get_running_loop().time() + request.timeout.total_seconds()
    topics = await asyncio.gather(
        *(
            asyncio.gather(
                *(delete_from_partition(ctx, topic.name, requested, until_s) for requested in topic.partitions)
            )
            for topic in request.topics
        )
    )
    return DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions))
            for topic, partitions in zip(request.topics, topics, strict=True)
        ),
    )


async def delete_from_partition(
    ctx: RequestContext, topic: str, requested: DeleteRecordsPartition, until_s: float
) -> DeleteRecordsPartitionResult:
    """Deletes the records below the requested offset and waits for the low watermark until
    `until_s` on the loop's clock. Errors are in the result.
    """
    try:
        async with asyncio.timeout_at(until_s):
            partition, below = await raise_log_start(ctx, topic, requested)
            leader = partition.leader
            await partition.wait_in_epoch(partition.low_watermark_waiters, lambda: leader.low_watermark >= below)
            low, code = leader.low_watermark, ErrorCode.none
    except KafkaError as reason:
        low, code = NO_WATERMARK, reason.code
    except TimeoutError:
        low, code = NO_WATERMARK, ErrorCode.request_timed_out
    return DeleteRecordsPartitionResult(
        partition_index=requested.partition_index, low_watermark=cast(i64, low), error_code=code
    )


async def raise_log_start(ctx: RequestContext, topic: str, requested: DeleteRecordsPartition) -> tuple[Partition, int]:
    """Deletes the records below the requested offset. Returns the partition, and that offset: the
    high watermark for −1. The log start may already be above it. Raises KafkaError with the
    partition's error.
    """
    ctx.check_authorized(Operation.delete, Resource.topic(topic))
    existing = ctx.broker.image.topics.get(topic)
    if existing is not None and existing.is_internal:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"{topic} is an internal topic")
    if existing is not None and (mirrored := ctx.broker.image.active_mirror(existing.id)) is not None:
        raise KafkaError(ErrorCode.policy_violation, read_only_message(topic, mirrored.mirror))
    partition = ctx.broker.partitions.leader(topic, requested.partition_index)
    log = partition.log
    if not log.config.cleanup_delete:
        raise KafkaError(ErrorCode.policy_violation, f"{topic} is compacted; records are deleted by tombstones there")
    if requested.offset < TO_HIGH_WATERMARK:
        raise KafkaError(ErrorCode.offset_out_of_range, f"offset {requested.offset}")
    offset = log.high_watermark if requested.offset == TO_HIGH_WATERMARK else requested.offset
    if ctx.broker.image.appended_sources and offset <= log.high_watermark:
        await ctx.broker.appended_retention.preserve_source_positions(partition, offset)
    log.delete_records_before(offset)
    # Answers the waiting fetches of followers, so that they learn of the new log start. It does so
    # in the next turn of the loop, because this request waits for the low watermark by then.
    asyncio.get_running_loop().call_soon(partition.notify_log_start_change)
    return partition, offset
