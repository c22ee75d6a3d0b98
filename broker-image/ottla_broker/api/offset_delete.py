"""OffsetDelete (47), version 0.

- Deletes a group's committed offsets of topics that no member subscribes to (otherwise
  GROUP_SUBSCRIBED_TO_TOPIC).
- A group whose members are not consumers is NON_EMPTY_GROUP: their subscriptions are unknown.
- The response is sent when the deletion is replicated. A missing offset is no error (KIP-496).
"""

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.OFFSET_DELETE,
    versions=(0, 0),
    flexible=None,
    rights=(
        Right(Operation.delete, ResourceType.group),
        Right(Operation.read, ResourceType.topic),
    ),
)


@API.handler()
async def offset_delete(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    ctx.check_authorized(Operation.delete, Resource.group(request.group_id))
    codes = {
        (topic.name, p.partition_index): find_error(ctx, topic.name, p.partition_index)
        for topic in request.topics
        for p in topic.partitions
    }
    valid = [key for key, code in codes.items() if code is ErrorCode.none]
    codes.update(zip(valid, await ctx.broker.group_coordinator.delete_offsets(request.group_id, valid), strict=True))
    return OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index, error_code=codes[topic.name, p.partition_index]
                    )
                    for p in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def find_error(ctx: RequestContext, topic: str, partition: int) -> ErrorCode:
    """The error of a partition that exists nowhere or that the client may not read; else `none`."""
    if not ctx.is_authorized(Operation.read, Resource.topic(topic)):
        return ErrorCode.topic_authorization_failed
    found = ctx.broker.image.topics.get(topic)
    if found is None or partition not in found.partitions:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none
