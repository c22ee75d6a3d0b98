"""DeleteShareGroupState (86), version 0 (KIP-932).

- Sent by group coordinators to the share coordinator: forgets share-partitions whose group or topic
  was deleted, or whose offsets were. One that does not exist is no error.
"""

from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest, PartitionData
from kio.schema.delete_share_group_state.v0.response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_state_requests import change_each, share_coordinator_of
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.share_groups.share_state import SharePartitionKey
from ottla_broker.wire.api_keys import ApiKey

API = Api(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    versions=(0, 0),
    flexible=0,
    rights=(Right(Operation.cluster_action, ResourceType.cluster),),
)


@API.handler()
async def delete_states(ctx: RequestContext, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
    async def delete(key: SharePartitionKey, _: PartitionData) -> None:
        await share_coordinator_of(ctx).delete(key)

    return DeleteShareGroupStateResponse(results=await change_each(request, delete, DeleteStateResult, PartitionResult))
