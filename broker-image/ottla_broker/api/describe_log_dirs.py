"""DescribeLogDirs (35), versions 1–5.

- Returns each log directory of this broker with its total and usable bytes (v4, KIP-827), and its
  partitions with their sizes.
- The lag of a partition is the distance from its log end to its high watermark: 0, because a
  replica's high watermark is never above its log end.
- A replica that moves to a directory is listed there as a future replica; its lag is the number of
  offsets that are not copied yet.
- A failed directory is KAFKA_STORAGE_ERROR without partitions. Topics without a replica here are
  omitted; null means all.
- v3 adds a top-level error; before it, a client that may not describe the cluster gets an empty
  response.
"""

from collections import defaultdict
from typing import cast

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla_broker.log.disk import read_file_system_space
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.DESCRIBE_LOG_DIRS,
    versions=(1, 5),
    flexible=2,
    rights=(
        Right(
            Operation.describe,
            ResourceType.cluster,
            refused="CLUSTER_AUTHORIZATION_FAILED; an empty list before version 3",
        ),
    ),
)

# By topic; None: all partitions.
RequestedPartitions = dict[str, frozenset[int]] | None


@API.handler()
async def describe_log_dirs(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not ctx.is_authorized(Operation.describe, CLUSTER):
        return DescribeLogDirsResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.cluster_authorization_failed, results=()
        )
    requested: RequestedPartitions = (
        None if request.topics is None else {t.topic: frozenset(t.partitions) for t in request.topics}
    )
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results=tuple([await describe_log_dir(ctx, directory, requested) for directory in ctx.broker.log_dirs]),
    )


async def describe_log_dir(
    ctx: RequestContext, directory: LogDir, requested: RequestedPartitions
) -> DescribeLogDirsResult:
    space = await ctx.broker.runtime.run_in_thread(read_file_system_space, directory.path)
    return DescribeLogDirsResult(
        error_code=ErrorCode.kafka_storage_error if directory.failure else ErrorCode.none,
        log_dir=directory.absolute_path,
        topics=() if directory.failure else describe_topics(ctx, directory, requested),
        total_bytes=i64(space.total),
        usable_bytes=i64(space.usable),
    )


def describe_topics(
    ctx: RequestContext, directory: LogDir, requested: RequestedPartitions
) -> tuple[DescribeLogDirsTopic, ...]:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)

    def is_requested(topic: str, partition: int) -> bool:
        return topic != METADATA_TOPIC and (requested is None or partition in requested.get(topic, ()))

    for (topic, partition), log in sorted(directory.logs.items()):
        if is_requested(topic, partition):
            by_topic[topic].append(describe_partition(partition, log, 0, False))
    for (topic, partition), log in sorted(directory.future_logs.items()):
        moving = ctx.broker.partitions.get(topic, partition)
        if is_requested(topic, partition) and moving is not None:
            by_topic[topic].append(describe_partition(partition, log, max(0, moving.log.end - log.end), True))
    return tuple(
        DescribeLogDirsTopic(name=TopicName(topic), partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
    )


def describe_partition(partition: int, log: PartitionLog, lag: int, is_future: bool) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=cast(i32, partition),
        partition_size=cast(i64, log.size),
        offset_lag=cast(i64, lag),
        is_future_key=is_future,
    )
