"""RecoverQuorum (10001), version 0: Ottla's own, sent by `ottla cluster recover`.

- Orders this broker to continue as a part of a cluster with a new id, after a majority of the
  voters was lost for good (`metadata/quorum_recovery.py`). The order is on disk before the
  response. Then the broker restarts and obeys it.
- INVALID_REQUEST when it is meant for another disk or cluster, or when this broker is in contact
  with a leader. KAFKA_STORAGE_ERROR when the order cannot be written.
"""

from ottla_broker.metadata.quorum_recovery import RecoveryOrder
from ottla_broker.requests.api import ALTER_CLUSTER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.recovery_messages import RecoverQuorumRequest, RecoverQuorumResponse

API = Api(ApiKey.RECOVER_QUORUM, versions=(0, 0), flexible=0, is_served_while_starting=True, rights=(ALTER_CLUSTER,))


@API.handler()
async def recover_quorum(ctx: RequestContext, request: RecoverQuorumRequest) -> RecoverQuorumResponse:
    order = RecoveryOrder(
        request.cluster_id,
        request.new_cluster_id,
        request.epoch,
        request.leads,
        request.leader_address,
        request.survivors,
    )
    await ctx.broker.order_recovery(order, request.directory_id)
    return RecoverQuorumResponse(error_code=ErrorCode.none, error_message=None)
