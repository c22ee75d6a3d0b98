"""InitializeShareGroupState (83), version 0 (KIP-932).

- Sent by group coordinators to the share coordinator: begins the state of share-partitions, with a
  start offset, or with −1 if `share.auto.offset.reset` is to decide.
- FENCED_STATE_EPOCH for a state epoch older than the known one.
"""

from kio.schema.initialize_share_group_state.v0.request import InitializeShareGroupStateRequest, PartitionData
from kio.schema.initialize_share_group_state.v0.response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_state_requests import change_each, share_coordinator_of
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.share_groups.share_state import SharePartitionKey
from ottla_broker.wire.api_keys import ApiKey

API = Api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    versions=(0, 0),
    flexible=0,
    rights=(Right(Operation.cluster_action, ResourceType.cluster),),
)


@API.handler()
async def initialize_states(
    ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    async def initialize(key: SharePartitionKey, requested: PartitionData) -> None:
        await share_coordinator_of(ctx).initialize(key, requested.state_epoch, requested.start_offset)

    return InitializeShareGroupStateResponse(
        results=await change_each(request, initialize, InitializeStateResult, PartitionResult)
    )
