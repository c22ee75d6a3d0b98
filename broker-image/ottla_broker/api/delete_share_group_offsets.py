"""DeleteShareGroupOffsets (92), version 0 (KIP-932).

- Forgets what a share group has read of whole topics. If it reads them again, it begins where
  `share.auto.offset.reset` says.
- NON_EMPTY_GROUP while the group has members; GROUP_ID_NOT_FOUND for a missing group, and one of
  another kind; UNKNOWN_TOPIC_OR_PARTITION for a topic that the group has not read.
"""

from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.share_requests import are_all_unauthorized, check_share_groups_served, topic_error
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    versions=(0, 0),
    flexible=0,
    rights=(Right(Operation.delete, ResourceType.group), Right(Operation.read, ResourceType.topic)),
)


@API.handler()
async def delete_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    check_share_groups_served(ctx)
    ctx.check_authorized(Operation.delete, Resource.group(request.group_id))
    groups = ctx.broker.group_coordinator.share_groups_of(request.group_id)
    errors = {topic.topic_name: topic_error(ctx, topic.topic_name) for topic in request.topics}
    topics = ctx.broker.image.topics
    if not are_all_unauthorized(errors.values()):  # else Kafka does not look at the group
        group = groups.find_empty_group(request.group_id)
        for name, error in errors.items():
            if error is NO_ERROR and topics[name].id not in group.initialized:
                errors[name] = KafkaError(ErrorCode.unknown_topic_or_partition, "the group has not read the topic")
    ids = {name: topics[name].id for name, error in errors.items() if error is NO_ERROR}
    if ids:
        failed = await groups.delete_offsets(request.group_id, ids.values())
        errors |= {name: failed[topic_id] for name, topic_id in ids.items() if topic_id in failed}
    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=ids.get(name, NO_UUID), error_code=error.code, error_message=error.message
            )
            for name, error in errors.items()
        ),
    )
