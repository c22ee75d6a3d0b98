"""ReadShareGroupStateSummary (87), versions 0–1 (KIP-932).

- Sent by group coordinators to the share coordinator, which returns the epochs and the start offset
  of share-partitions. Both the start offset and the leader epoch are −1 for a share-partition that
  was not initialized.
- v1 adds how many records at or above the start offset are acknowledged or archived.
"""

from functools import partial
from typing import cast

from kio.schema.read_share_group_state_summary.v1.request import PartitionData, ReadShareGroupStateSummaryRequest
from kio.schema.read_share_group_state_summary.v1.response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from kio.static.primitive import i32, i64

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_state_requests import answer_each, share_coordinator_of
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.share_groups.share_state import SharePartitionKey, ShareState
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, KafkaError

API = Api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    versions=(0, 1),
    flexible=0,
    rights=(Right(Operation.cluster_action, ResourceType.cluster),),
)


UNKNOWN = ShareState(leader_epoch=-1)


@API.handler()
async def read_summaries(
    ctx: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=await answer_each(request, partial(read_summary, ctx), ReadStateSummaryResult)
    )


async def read_summary(ctx: RequestContext, key: SharePartitionKey, requested: PartitionData) -> PartitionResult:
    try:
        state, error = await share_coordinator_of(ctx).find(key) or UNKNOWN, NO_ERROR
    except KafkaError as reason:
        state, error = ShareState(start_offset=0, delivery_complete_count=-1), reason
    return PartitionResult(
        partition=requested.partition,
        error_code=error.code,
        error_message=error.message,
        state_epoch=cast(i32, state.state_epoch),
        leader_epoch=cast(i32, state.leader_epoch),
        start_offset=cast(i64, state.start_offset),
        delivery_complete_count=cast(i32, state.delivery_complete_count),
    )
