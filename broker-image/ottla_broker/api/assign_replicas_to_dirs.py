"""AssignReplicasToDirs (73), version 0: between brokers only, handled by the active controller
(KIP-858).

- A broker reports the log directory of a replica that moves, so that the controller knows which
  replicas are gone when a directory fails or is lost.
- Only from a registered broker with its current epoch: BROKER_ID_NOT_REGISTERED,
  STALE_BROKER_EPOCH. For each partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
  NOT_LEADER_OR_FOLLOWER.
"""

from kio.schema.assign_replicas_to_dirs.v0 import request as request_types
from kio.schema.assign_replicas_to_dirs.v0 import response as response_types

from ottla_broker.metadata.replication_control import DirectoryAssignment
from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions=(0, 0), flexible=0, is_served_while_starting=True, rights=(CLUSTER_ACTION,)
)


@API.handler()
async def assign_replicas_to_dirs(
    ctx: RequestContext, request: request_types.AssignReplicasToDirsRequest
) -> response_types.AssignReplicasToDirsResponse:
    controller = ctx.broker.active_controller()
    controller.cluster_control.check_broker_epoch(request.broker_id, request.broker_epoch)
    assignments = [
        DirectoryAssignment(topic.topic_id or NO_UUID, int(partition.partition_index), directory.id_ or NO_UUID)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    outcomes = iter(await controller.replication_control.assign_directories(request.broker_id, assignments))
    return response_types.AssignReplicasToDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        directories=tuple(
            response_types.DirectoryData(
                id_=directory.id_,
                topics=tuple(
                    response_types.TopicData(
                        topic_id=topic.topic_id,
                        partitions=tuple(build_partition(partition, next(outcomes)) for partition in topic.partitions),
                    )
                    for topic in directory.topics
                ),
            )
            for directory in request.directories
        ),
    )


def build_partition(partition: request_types.PartitionData, outcome: KafkaError | None) -> response_types.PartitionData:
    return response_types.PartitionData(
        partition_index=partition.partition_index, error_code=ErrorCode.none if outcome is None else outcome.code
    )
