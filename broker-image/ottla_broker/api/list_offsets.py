"""ListOffsets (2), versions 1–11.

- A timestamp in milliseconds finds the first record at or after it, or (−1, −1). Negative
  timestamps have meanings: −1 the end (the last stable offset for read_committed), −2 the start, −3
  the record with the largest timestamp (v7, KIP-734), −4 the first local offset (v8), −5 the last
  tiered offset (v9), −6 the first offset that waits for upload (v11).
- Nothing is tiered: −4 equals −2, and −5 and −6 find nothing.
- v4 checks leader epochs and returns that of the offset.
- A new leader may not know yet everything that its predecessor reported as committed. The response
  waits up to MAX_WAIT_S until it does, and is OFFSET_NOT_AVAILABLE after that (KIP-207; before v5
  LEADER_NOT_AVAILABLE). Timestamps that do not depend on that (−2, −4, −5, −6) and requests of
  followers are answered at once.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import cast

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.static.primitive import i32, i64

from ottla_broker.log.indexes import TimestampOffset
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6, rights=(Right(Operation.describe, ResourceType.topic),))

LATEST, EARLIEST, LARGEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
# The version that added each of them.
TIMESTAMP_SINCE = {LARGEST: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
ALWAYS_AVAILABLE = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING)
NOT_AVAILABLE_SINCE = 5
MAX_WAIT_S = 1.0
NOT_FOUND = TimestampOffset(-1, -1)


@API.handler()
async def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    await wait_for_epoch_starts(ctx, request)
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=topic_offsets(ctx, topic, request),
            )
            for topic in request.topics
        ),
    )


async def wait_for_epoch_starts(ctx: RequestContext, request: ListOffsetsRequest) -> None:
    """Waits for at most MAX_WAIT_S until new leaders know up to which offset their predecessors
    committed. Requests of followers do not wait."""
    not_started = [
        partition
        for topic in request.topics
        for requested in topic.partitions
        if requested.timestamp not in ALWAYS_AVAILABLE
        and (partition := ctx.broker.partitions.get(topic.name, requested.partition_index)) is not None
        and not partition.has_reached_epoch_start
    ]
    if not_started and request.replica_id < 0:
        await asyncio.gather(*(wait_for_epoch_start(partition) for partition in not_started))


async def wait_for_epoch_start(partition: Partition) -> None:
    with suppress(TimeoutError):  # the response says so
        async with asyncio.timeout(MAX_WAIT_S):
            await partition.read_waiters.wait_until(
                lambda: partition.has_reached_epoch_start or not partition.is_leader
            )


def topic_offsets(
    ctx: RequestContext, topic: ListOffsetsTopic, request: ListOffsetsRequest
) -> tuple[ListOffsetsPartitionResponse, ...]:
    """One result for each partition. Clients find results by partition, so one requested twice is
    INVALID_REQUEST.
    """
    times_named = Counter(requested.partition_index for requested in topic.partitions)
    responses = {
        requested.partition_index: partition_offset(ctx, topic.name, request, requested)
        if times_named[requested.partition_index] == 1
        else ListOffsetsPartitionResponse(
            partition_index=requested.partition_index, error_code=ErrorCode.invalid_request
        )
        for requested in topic.partitions
    }
    return tuple(responses.values())


def partition_offset(
    ctx: RequestContext, topic: str, request: ListOffsetsRequest, requested: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    try:
        ctx.check_authorized(Operation.describe, Resource.topic(topic))
        if ctx.version < TIMESTAMP_SINCE.get(requested.timestamp, 0) or requested.timestamp < EARLIEST_PENDING:
            raise KafkaError(ErrorCode.unsupported_version, f"timestamp {requested.timestamp} in version {ctx.version}")
        partition = ctx.broker.partitions.leader(topic, requested.partition_index, epoch=requested.current_leader_epoch)
        if (
            request.replica_id < 0
            and not partition.has_reached_epoch_start
            and requested.timestamp not in ALWAYS_AVAILABLE
        ):
            raise KafkaError(
                ErrorCode.offset_not_available if ctx.version >= NOT_AVAILABLE_SINCE else ErrorCode.leader_not_available
            )
        found = find_offset(
            partition, requested.timestamp, partition.readable_end(request.isolation_level, request.replica_id)
        )
    except KafkaError as reason:
        return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=reason.code)
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        error_code=ErrorCode.none,
        timestamp=cast(i64, found.timestamp),
        offset=cast(i64, found.offset),
        leader_epoch=cast(i32, found.leader_epoch),
    )


def find_offset(partition: Partition, timestamp: int, end: int) -> TimestampOffset:
    """`end`: the first offset that the client may not read."""
    log = partition.log
    if timestamp == LATEST:
        return TimestampOffset(-1, end, log.epochs.latest_epoch())
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.start, log.epochs.epoch_for_offset(log.start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return NOT_FOUND
    found = log.offset_of_max_timestamp() if timestamp == LARGEST else log.offset_for_timestamp(timestamp)
    return found if found is not None and found.offset < end else NOT_FOUND
