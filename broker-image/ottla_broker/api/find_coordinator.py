"""FindCoordinator (10), versions 0–6.

- Returns the broker that coordinates a group: the leader of the partition of `__consumer_offsets`
  that the group's id hashes to.
- Creates `__consumer_offsets` if it is missing. COORDINATOR_NOT_AVAILABLE until its partition has a
  leader.
- Transactions are not implemented, and a transactional client must fail at once instead of retrying
  until a timeout. librdkafka uses the single form (v0–3), gives up only on an authorization error,
  and prints the message with it. The Java client uses the batched form, gives up on any error that
  is not retriable, and prints the message.
- v1 adds key types and messages; v4 several keys (KIP-699); v6 share groups (not served).
"""

from typing import cast

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as RequestV3
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as ResponseV3
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.coordination.records import OFFSETS_TOPIC
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.node_endpoints import NodeEndpoint

API = Api(ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3, rights=(Right(Operation.describe, ResourceType.group),))

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
NO_COORDINATOR = NodeEndpoint(-1, "", -1)
NO_TRANSACTIONS = "transactions are not implemented; leave transactional.id unset"


@API.handler(0, 3)
async def find_coordinator(ctx: RequestContext, request: RequestV3) -> ResponseV3:
    found = await find_for_key(ctx, request.key_type, request.key)
    code = found.error_code
    if request.key_type == TRANSACTION_KEY_TYPE and code is ErrorCode.unsupported_version:
        code = ErrorCode.transactional_id_authorization_failed
    return ResponseV3(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


@API.handler(4, 6)
async def find_coordinators(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple([await find_for_key(ctx, request.key_type, key) for key in request.coordinator_keys]),
    )


async def find_for_key(ctx: RequestContext, kind: int, key: str) -> Coordinator:
    try:
        if kind == TRANSACTION_KEY_TYPE:
            raise KafkaError(ErrorCode.unsupported_version, NO_TRANSACTIONS)
        if kind != GROUP_KEY_TYPE:
            raise KafkaError(ErrorCode.invalid_request, f"coordinators of key type {kind} are not served")
        ctx.check_authorized(Operation.describe, Resource.group(key))
        error, found = NO_ERROR, await find_endpoint(ctx, key)
    except KafkaError as reason:
        error, found = reason, NO_COORDINATOR
    return Coordinator(
        key=key,
        node_id=BrokerId(cast(i32, found.broker)),
        host=found.host,
        port=cast(i32, found.port),
        error_code=error.code,
        error_message=error.message,
    )


async def find_endpoint(ctx: RequestContext, group: str) -> NodeEndpoint:
    """The coordinator at the client's listener. Raises COORDINATOR_NOT_AVAILABLE."""
    broker = ctx.broker
    if OFFSETS_TOPIC not in broker.image.topics:
        try:
            await broker.auto_create_topic(OFFSETS_TOPIC)
        except KafkaError as reason:
            raise KafkaError(ErrorCode.coordinator_not_available, reason.message) from reason
    partition = broker.group_coordinator.partition_of(group)
    await broker.failure_detector.wait_until_confirmed([offsets_partition(broker.image, partition).leader])
    state = offsets_partition(broker.image, partition)  # which may have changed, or gone, meanwhile
    leader = broker.image.brokers.get(state.leader)
    endpoint = None if leader is None else leader.endpoints.get(ctx.connection.listener)
    if leader is None or endpoint is None:
        raise KafkaError(
            ErrorCode.coordinator_not_available, f"{OFFSETS_TOPIC}-{state.partition} has no leader at this listener"
        )
    return NodeEndpoint(leader.id, endpoint.host, endpoint.port)


def offsets_partition(image: MetadataImage, partition: int) -> PartitionRecord:
    """Raises COORDINATOR_NOT_AVAILABLE when the topic was deleted."""
    topic = image.topics.get(OFFSETS_TOPIC)
    state = None if topic is None else topic.partitions.get(partition)
    if state is None:
        raise KafkaError(ErrorCode.coordinator_not_available, f"{OFFSETS_TOPIC}-{partition} was deleted")
    return state
