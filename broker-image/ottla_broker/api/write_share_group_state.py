"""WriteShareGroupState (85), versions 0–1 (KIP-932).

- Sent by partition leaders to the share coordinator: changes of share-partitions. The response
  comes when they are replicated.
- FENCED_LEADER_EPOCH for a former leader, FENCED_STATE_EPOCH once the group's offsets were
  reset.
- v1 adds how many records at or above the start offset are acknowledged or archived, from which the
  lag is computed.
"""

from kio.schema.write_share_group_state.v1.request import PartitionData, WriteShareGroupStateRequest
from kio.schema.write_share_group_state.v1.response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_state_requests import change_each, share_coordinator_of
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.share_groups.share_state import SharePartitionKey, StateBatch, StateUpdate
from ottla_broker.wire.api_keys import ApiKey

API = Api(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    versions=(0, 1),
    flexible=0,
    rights=(Right(Operation.cluster_action, ResourceType.cluster),),
)


@API.handler()
async def write_states(ctx: RequestContext, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
    async def write(key: SharePartitionKey, requested: PartitionData) -> None:
        await share_coordinator_of(ctx).write(key, read_update(requested))

    return WriteShareGroupStateResponse(results=await change_each(request, write, WriteStateResult, PartitionResult))


def read_update(requested: PartitionData) -> StateUpdate:
    return StateUpdate(
        requested.state_epoch,
        requested.leader_epoch,
        requested.start_offset,
        requested.delivery_complete_count,
        tuple(
            StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in requested.state_batches
        ),
    )
