"""ReadShareGroupState (84), version 0 (KIP-932).

- Sent by a partition's new leader to the share coordinator, which returns the state from which the
  leader continues. An earlier leader can no longer write.
- UNKNOWN_TOPIC_OR_PARTITION for a share-partition that was not initialized.
"""

from functools import partial
from typing import cast

from kio.schema.read_share_group_state.v0.request import PartitionData, ReadShareGroupStateRequest
from kio.schema.read_share_group_state.v0.response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from kio.static.primitive import i8, i16, i32, i64

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_state_requests import answer_each, share_coordinator_of
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.share_groups.share_state import SharePartitionKey, ShareState
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, KafkaError

API = Api(
    ApiKey.READ_SHARE_GROUP_STATE,
    versions=(0, 0),
    flexible=0,
    rights=(Right(Operation.cluster_action, ResourceType.cluster),),
)


@API.handler()
async def read_states(ctx: RequestContext, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(results=await answer_each(request, partial(read_state, ctx), ReadStateResult))


async def read_state(ctx: RequestContext, key: SharePartitionKey, requested: PartitionData) -> PartitionResult:
    try:
        state, error = await share_coordinator_of(ctx).read(key, requested.leader_epoch), NO_ERROR
    except KafkaError as reason:
        state, error = ShareState(start_offset=0), reason
    return PartitionResult(
        partition=requested.partition,
        error_code=error.code,
        error_message=error.message,
        state_epoch=cast(i32, state.state_epoch),
        start_offset=cast(i64, state.start_offset),
        state_batches=tuple(
            StateBatch(
                first_offset=cast(i64, one.first_offset),
                last_offset=cast(i64, one.last_offset),
                delivery_state=cast(i8, int(one.delivery_state)),
                delivery_count=cast(i16, one.delivery_count),
            )
            for one in state.batches
        ),
    )
