"""AlterReplicaLogDirs (34), versions 1–2 (KIP-113).

- Moves replicas of this broker to other log directories while they are read and written; the
  response does not wait for the move. DescribeLogDirs lists the copy as a future replica, until it
  takes the replica's place.
- A replica that is in the directory already: no error, and a move to another directory is
  cancelled.
- LOG_DIR_NOT_FOUND: the path is none of log.dirs. KAFKA_STORAGE_ERROR: that directory or the
  partition is offline. INVALID_TOPIC_EXCEPTION: the name is too long for the folder of a copy.
- UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist, REPLICA_NOT_AVAILABLE if only other
  brokers have replicas of it. In both cases a replica that this broker gets later is created in
  that directory.
- Clients that may not alter the cluster get CLUSTER_AUTHORIZATION_FAILED for each partition.
- v1 differs in throttling only; v2 is flexible.
"""

from collections import defaultdict

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2, rights=(Right(Operation.alter, ResourceType.cluster),)
)


@API.handler()
async def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    is_authorized = ctx.is_authorized(Operation.alter, CLUSTER)
    results: dict[TopicName, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                code = (
                    move_replica(ctx, topic.name, partition, directory.path)
                    if is_authorized
                    else ErrorCode.cluster_authorization_failed
                )
                results[topic.name].append(
                    AlterReplicaLogDirPartitionResult(partition_index=i32(partition), error_code=code)
                )
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=tuple(partitions))
            for topic, partitions in results.items()
        ),
    )


def move_replica(ctx: RequestContext, topic: str, partition: int, path: str) -> ErrorCode:
    try:
        ctx.broker.replica_mover.move_replica(topic, partition, path)
    except KafkaError as reason:
        return reason.code
    return ErrorCode.none
