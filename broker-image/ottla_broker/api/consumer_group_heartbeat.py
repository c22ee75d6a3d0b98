"""ConsumerGroupHeartbeat (68), versions 0–1 (KIP-848).

- One request for all of a member's life: it joins (epoch 0), reports what it owns, learns what it
  is assigned, and leaves (epoch −1; −2 for a static member that will return). Fields that have not
  changed may be left out.
- A member that joins a classic group turns it into a consumer group, as far as
  `group.consumer.migration.policy` allows.
- Without `consumer` in `group.coordinator.rebalance.protocols`, or at level 0 of the feature
  `group.version`, every request is UNSUPPORTED_VERSION: clients fail with the message, or fall back
  to the classic protocol (franz-go). librdkafka would look for another coordinator forever if the
  API were not served.
- v1 has member ids that the client chooses, and regular expressions, which the broker evaluates.
  In v0 a member without an id is given one.
"""

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

from ottla_broker.coordination.consumer_heartbeat import ConsumerHeartbeat
from ottla_broker.coordination.consumer_member import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.consumer_heartbeat_response import build_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import to_milliseconds
from ottla_broker.requests.group_requests import check_not_blank, client_host, is_consumer_protocol_enabled
from ottla_broker.requests.repeated_heartbeat import remember_heartbeat
from ottla_broker.runtime import uuid_text
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=(0, 1),
    flexible=0,
    starts_no_task=True,
    rights=(
        Right(Operation.read, ResourceType.group),
        Right(Operation.describe, ResourceType.topic, when="for the topics that the member names"),
    ),
)

CLIENT_CHOOSES_ID_SINCE = 1


@API.handler()
async def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    coordinator = ctx.broker.group_coordinator
    if not is_consumer_protocol_enabled(ctx):
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"group {request.group_id!r}: group.protocol=consumer is not enabled; allowed: classic",
        )
    ctx.check_authorized(Operation.read, Resource.group(request.group_id))
    for topic in dict.fromkeys(request.subscribed_topic_names or ()):
        ctx.check_authorized(Operation.describe, Resource.topic(topic))
    check_request(request, ctx.version, coordinator.config.consumer.assignors)
    heartbeat = build_heartbeat(ctx, request)
    remember_heartbeat(ctx, request.group_id, heartbeat)
    return build_response(await coordinator.consumer_groups_of(request.group_id).heartbeat(request.group_id, heartbeat))


def build_heartbeat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    owned = request.topic_partitions
    return ConsumerHeartbeat(
        member_id=request.member_id or uuid_text(ctx.broker.runtime.new_uuid()),
        member_epoch=request.member_epoch,
        group_instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_milliseconds(request.rebalance_timeout),
        subscribed_topic_names=request.subscribed_topic_names,
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else {it.topic_id or NO_UUID: frozenset(it.partitions) for it in owned},
        client_id=ctx.client_id or "",
        client_host=client_host(ctx),
        may_describe=lambda topic: ctx.may(Operation.describe, Resource.topic(topic)),
    )


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Raises INVALID_REQUEST and UNSUPPORTED_ASSIGNOR, in Kafka's order."""
    epoch = request.member_epoch
    if version >= CLIENT_CHOOSES_ID_SINCE or epoch != JOINING_EPOCH:
        check_not_blank("MemberId", request.member_id)
    check_not_blank("GroupId", request.group_id)
    check_not_blank("InstanceId", request.instance_id)
    check_not_blank("RackId", request.rack_id)
    if epoch == JOINING_EPOCH:
        if to_milliseconds(request.rebalance_timeout) == -1:
            raise KafkaError(ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise KafkaError(ErrorCode.invalid_request, "TopicPartitions must be empty when (re-)joining.")
        # An empty list or an empty expression is a member that subscribes to nothing.
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise KafkaError(
                ErrorCode.invalid_request,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise KafkaError(ErrorCode.invalid_request, "InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        raise KafkaError(ErrorCode.invalid_request, f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
