"""AlterShareGroupOffsets (91), version 0 (KIP-932).

- Sets where a share group continues to read. Records from there on that the group had acquired or
  acknowledged are delivered again. The response comes when the share coordinators have stored the
  offsets.
- A missing group is created. NON_EMPTY_GROUP while the group has members; GROUP_ID_NOT_FOUND for
  one of another kind.
"""

from typing import cast

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.static.primitive import i32

from ottla_broker.coordination.share_group_requests import StatePartition
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.share_requests import are_all_unauthorized, check_share_groups_served, topic_error
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    versions=(0, 0),
    flexible=0,
    rights=(Right(Operation.read, ResourceType.group), Right(Operation.read, ResourceType.topic)),
)


@API.handler()
async def alter_offsets(ctx: RequestContext, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    check_share_groups_served(ctx)
    ctx.check_authorized(Operation.read, Resource.group(request.group_id))
    groups = ctx.broker.group_coordinator.share_groups_of(request.group_id)
    errors = {topic.topic_name: topic_error(ctx, topic.topic_name) for topic in request.topics}
    if not are_all_unauthorized(errors.values()):  # else Kafka does not look at the group
        groups.check_alterable(request.group_id)
    image = ctx.broker.image
    offsets = {
        StatePartition(image.topics[topic.topic_name].id, int(one.partition_index)): int(one.start_offset)
        for topic in request.topics
        if errors[topic.topic_name] is NO_ERROR
        for one in topic.partitions
        if one.partition_index in image.topics[topic.topic_name].partitions
    }
    failed: dict[StatePartition, KafkaError] = {}
    if offsets:
        failed = await groups.alter_offsets(request.group_id, offsets)
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(build_topic(ctx, topic, errors[topic.topic_name], offsets, failed) for topic in request.topics),
    )


def build_topic(
    ctx: RequestContext,
    topic: AlterShareGroupOffsetsRequestTopic,
    error: KafkaError,
    offsets: dict[StatePartition, int],
    failed: dict[StatePartition, KafkaError],
) -> AlterShareGroupOffsetsResponseTopic:
    found = ctx.broker.image.topics.get(topic.topic_name)
    topic_id = NO_UUID if found is None else found.id
    results = []
    for one in topic.partitions:
        at = StatePartition(topic_id, int(one.partition_index))
        result = failed.get(at, NO_ERROR)
        if error is not NO_ERROR:
            result = error
        elif at not in offsets:
            result = KafkaError(ErrorCode.unknown_topic_or_partition)
        results.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=cast(i32, at.partition), error_code=result.code, error_message=result.message
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=topic_id, partitions=tuple(results)
    )
