"""DeleteShareGroupState (86), version 0 (KIP-932).

- Sent by group coordinators to the share coordinator: forgets share-partitions of a deleted group
  or topic. One that does not exist is no error.
"""

from uuid import UUID

from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest, PartitionData
from kio.schema.delete_share_group_state.v0.response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.share_requests import share_coordinator_of
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.share_groups.share_state import SharePartitionKey
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, KafkaError

API = Api(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    versions=(0, 0),
    flexible=0,
    rights=(Right(Operation.cluster_action, ResourceType.cluster),),
)


@API.handler()
async def delete_states(ctx: RequestContext, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
    return DeleteShareGroupStateResponse(
        results=tuple(
            [
                DeleteStateResult(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        [
                            await delete_state(ctx, request.group_id, topic.topic_id, wanted)
                            for wanted in topic.partitions
                        ]
                    ),
                )
                for topic in request.topics
            ]
        )
    )


async def delete_state(
    ctx: RequestContext, group_id: str, topic_id: UUID | None, wanted: PartitionData
) -> PartitionResult:
    key = SharePartitionKey(group_id, topic_id or UUID(int=0), wanted.partition)
    try:
        await share_coordinator_of(ctx).delete(key)
        error = NO_ERROR
    except KafkaError as reason:
        error = reason
    return PartitionResult(partition=wanted.partition, error_code=error.code, error_message=error.message)
