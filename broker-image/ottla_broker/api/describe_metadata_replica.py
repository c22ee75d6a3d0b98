"""DescribeMetadataReplica (10000), version 0: Ottla's own, for the operator and `ottla cluster
recover`.

- Describes this broker's replica of the metadata log: its log directory, cluster, epoch, log end
  and voters. It needs no leader and is answered before the broker is ready, so that it can help to
  find out why a cluster has no leader.
- `leader_id` is −1 unless this broker leads or receives responses of the leader.
"""

from ottla_broker.requests.api import DESCRIBE_CLUSTER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.recovery_messages import (
    DescribeMetadataReplicaRequest,
    DescribeMetadataReplicaResponse,
    ReplicaVoter,
)

API = Api(
    ApiKey.DESCRIBE_METADATA_REPLICA,
    versions=(0, 0),
    flexible=0,
    is_served_while_starting=True,
    rights=(DESCRIBE_CLUSTER,),
)


@API.handler()
async def describe_metadata_replica(
    ctx: RequestContext, request: DescribeMetadataReplicaRequest
) -> DescribeMetadataReplicaResponse:
    replica, home = ctx.broker.quorum.describe_replica(), ctx.broker.log_dirs[0]
    return DescribeMetadataReplicaResponse(
        error_code=ErrorCode.none,
        error_message=None,
        broker_id=home.node_id,
        directory_id=home.directory_id,
        address=replica.address,
        cluster_id=home.cluster_id,
        previous_cluster_id=home.previous_cluster_id,
        leader_id=replica.leader_id,
        epoch=replica.epoch,
        log_end_epoch=replica.log_end.epoch,
        log_end_offset=replica.log_end.offset,
        high_watermark=replica.high_watermark,
        voters=tuple(
            ReplicaVoter(broker_id=voter.broker, directory_id=voter.directory, address=voter.address)
            for voter in replica.voters
        ),
    )
