"""WriteShareGroupState (85), versions 0–1 (KIP-932).

- Sent by partition leaders to the share coordinator: changes of share-partitions. The response
  comes when that is replicated.
- FENCED_LEADER_EPOCH for a former leader, FENCED_STATE_EPOCH once the group's offsets were
  reset.
- v1 adds how many records at or above the start offset are acknowledged or archived, from which the
  lag is computed.
"""

from uuid import UUID

from kio.schema.write_share_group_state.v1.request import PartitionData, WriteShareGroupStateRequest
from kio.schema.write_share_group_state.v1.response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_requests import share_coordinator_of
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.share_groups.share_state import SharePartitionKey, StateBatch, StateUpdate
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, KafkaError

API = Api(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    versions=(0, 1),
    flexible=0,
    rights=(Right(Operation.cluster_action, ResourceType.cluster),),
)


@API.handler()
async def write_states(ctx: RequestContext, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
    return WriteShareGroupStateResponse(
        results=tuple(
            [
                WriteStateResult(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        [
                            await write_state(ctx, request.group_id, topic.topic_id, wanted)
                            for wanted in topic.partitions
                        ]
                    ),
                )
                for topic in request.topics
            ]
        )
    )


async def write_state(
    ctx: RequestContext, group_id: str, topic_id: UUID | None, wanted: PartitionData
) -> PartitionResult:
    key = SharePartitionKey(group_id, topic_id or UUID(int=0), wanted.partition)
    update = StateUpdate(
        wanted.state_epoch,
        wanted.leader_epoch,
        wanted.start_offset,
        wanted.delivery_complete_count,
        tuple(
            StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in wanted.state_batches
        ),
    )
    try:
        await share_coordinator_of(ctx).write(key, update)
        error = NO_ERROR
    except KafkaError as reason:
        error = reason
    return PartitionResult(partition=wanted.partition, error_code=error.code, error_message=error.message)
