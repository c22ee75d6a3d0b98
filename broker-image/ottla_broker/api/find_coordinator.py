"""FindCoordinator (10), versions 0–6.

- Returns the broker that coordinates a group, a transactional id or a share-partition: the leader
  of the partition of `__consumer_offsets`, `__transaction_state` or `__share_group_state` that the
  id hashes to. The id of a share-partition is GROUP:TOPIC ID:PARTITION.
- Creates that topic if it is missing. COORDINATOR_NOT_AVAILABLE until its partition has a leader.
- v1 adds key types and messages; v4 several keys (KIP-699); v6 share-partitions (KIP-932).
"""

from collections.abc import Callable
from typing import cast

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as RequestV3
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as ResponseV3
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.coordination.records import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.share_requests import share_groups_of
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.share_groups.share_state import parse_coordinator_key
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.node_endpoints import NodeEndpoint

API = Api(
    ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    flexible=3,
    rights=(
        Right(Operation.describe, ResourceType.group, when="of a group"),
        Right(Operation.describe, ResourceType.transactional_id, when="of a transactional id"),
        Right(Operation.cluster_action, ResourceType.cluster, when="of a share-partition"),
    ),
)

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
SHARE_KEY_TYPE = 2
SHARE_KEYS_SINCE = 6
NO_COORDINATOR = NodeEndpoint(-1, "", -1)


@API.handler(0, 3)
async def find_coordinator(ctx: RequestContext, request: RequestV3) -> ResponseV3:
    found = await find_coordinator_of_key(ctx, request.key_type, request.key)
    return ResponseV3(
        throttle_time=NO_THROTTLE,
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


@API.handler(4, 6)
async def find_coordinators(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(
            [await find_coordinator_of_key(ctx, request.key_type, key) for key in request.coordinator_keys]
        ),
    )


async def find_coordinator_of_key(ctx: RequestContext, kind: int, key: str) -> Coordinator:
    """The coordinator of a key of this type, or the error in its place."""
    try:
        if kind == TRANSACTION_KEY_TYPE:
            ctx.check_authorized(Operation.describe, Resource.transactional_id(key))
            found = await find_endpoint(
                ctx, TRANSACTION_STATE_TOPIC, lambda: ctx.broker.transactions.coordinator.partition_of(key)
            )
        elif kind == GROUP_KEY_TYPE:
            ctx.check_authorized(Operation.describe, Resource.group(key))
            found = await find_endpoint(ctx, OFFSETS_TOPIC, lambda: ctx.broker.group_coordinator.partition_of(key))
        elif kind == SHARE_KEY_TYPE and ctx.version >= SHARE_KEYS_SINCE:
            ctx.check_authorized(Operation.cluster_action, CLUSTER)
            if (share_partition := parse_coordinator_key(key)) is None:
                raise KafkaError(
                    ErrorCode.invalid_request, f"{key!r} is not a share-partition; allowed: GROUP:TOPIC ID:PARTITION"
                )
            coordinator = share_groups_of(ctx).coordinator
            found = await find_endpoint(ctx, SHARE_STATE_TOPIC, lambda: coordinator.partition_of(share_partition))
        else:
            raise KafkaError(ErrorCode.invalid_request, f"coordinators of key type {kind} are not served")
        error = NO_ERROR
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


async def find_endpoint(ctx: RequestContext, topic: str, find_partition: Callable[[], int]) -> NodeEndpoint:
    """The coordinator at the client's listener. Raises COORDINATOR_NOT_AVAILABLE."""
    broker = ctx.broker
    if topic not in broker.image.topics:
        try:
            await broker.auto_create_topic(topic)
        except KafkaError as reason:
            raise KafkaError(ErrorCode.coordinator_not_available, reason.message) from reason
    partition = find_partition()
    await broker.failure_detector.wait_until_confirmed([partition_state(broker.image, topic, partition).leader])
    state = partition_state(broker.image, topic, partition)  # which may have changed, or gone, meanwhile
    leader = broker.image.brokers.get(state.leader)
    endpoint = None if leader is None else leader.endpoints.get(ctx.connection.listener)
    if leader is None or endpoint is None:
        raise KafkaError(
            ErrorCode.coordinator_not_available, f"{topic}-{state.partition} has no leader at this listener"
        )
    return NodeEndpoint(leader.id, endpoint.host, endpoint.port)


def partition_state(image: MetadataImage, topic: str, partition: int) -> PartitionRecord:
    """Raises COORDINATOR_NOT_AVAILABLE when the topic was deleted."""
    found = image.topics.get(topic)
    state = None if found is None else found.partitions.get(partition)
    if state is None:
        raise KafkaError(ErrorCode.coordinator_not_available, f"{topic}-{partition} was deleted")
    return state
