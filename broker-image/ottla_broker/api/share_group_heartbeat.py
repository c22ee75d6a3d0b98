"""ShareGroupHeartbeat (76), version 1 (KIP-932).

- With this request a member joins a share group (epoch 0), gets the partitions that it may fetch,
  and leaves (epoch −1). Fields that have not changed may be left out.
- Members share partitions, so no member waits until another has given a partition up.
- A heartbeat that finds a new partition initializes the partition's share state before the response
  is sent.
- UNSUPPORTED_VERSION while the feature `share.version` has level 0, unless
  `group.coordinator.rebalance.protocols` has `share`.
"""

from typing import cast

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import Assignment, ShareGroupHeartbeatResponse, TopicPartitions
from kio.static.primitive import i32

from ottla_broker.coordination.assignors import Assignment as PartitionsByTopic
from ottla_broker.coordination.consumer_member import JOINING_EPOCH, LEAVING_EPOCH
from ottla_broker.coordination.share_heartbeat import ShareHeartbeat
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE, to_duration
from ottla_broker.requests.group_requests import check_not_blank, client_host
from ottla_broker.requests.share_requests import check_share_groups_served
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    versions=(1, 1),
    flexible=1,
    rights=(
        Right(Operation.read, ResourceType.group),
        Right(Operation.describe, ResourceType.topic, when="for the topics that the member names"),
    ),
)


@API.handler()
async def share_group_heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    check_share_groups_served(ctx)
    ctx.check_authorized(Operation.read, Resource.group(request.group_id))
    for topic in dict.fromkeys(request.subscribed_topic_names or ()):
        ctx.check_authorized(Operation.describe, Resource.topic(topic))
    check_request(request)
    heartbeat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        request.subscribed_topic_names,
        ctx.client_id or "",
        client_host(ctx),
    )
    groups = ctx.broker.group_coordinator.share_groups_of(request.group_id)
    result = await groups.heartbeat(request.group_id, heartbeat)
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=result.member_id,
        member_epoch=cast(i32, result.member_epoch),
        heartbeat_interval=to_duration(result.heartbeat_interval_ms),
        assignment=None if result.assignment is None else build_assignment(result.assignment),
    )


def build_assignment(assignment: PartitionsByTopic) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(cast(i32, it) for it in sorted(partitions)))
            for topic, partitions in sorted(assignment.items())
        )
    )


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST, in Kafka's order."""
    check_not_blank("MemberId", request.member_id)
    check_not_blank("GroupId", request.group_id)
    check_not_blank("RackId", request.rack_id)
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise KafkaError(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING_EPOCH:
        raise KafkaError(ErrorCode.invalid_request, "MemberEpoch is invalid.")
