"""DescribeCluster (60), versions 0–2.

- Returns the cluster id, the controller, and the brokers with their endpoints at the client's
  listener.
- Every broker can be the controller, so there are no controller endpoints: requesting them is
  MISMATCHED_ENDPOINT_TYPE.
- The controller is −1 while none is known. Metadata names the last controller in that case, so that
  clients send requests, which wait for the next one.
- Fenced brokers are omitted, unless v2's flag includes them. v1 adds the endpoint type (KIP-919).
- While this broker starts, only other brokers get a response. The cluster id in it is empty until
  this broker belongs to a cluster.
- Authorized operations are returned to clients that may describe the cluster.
"""

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    flexible=0,
    is_served_while_starting=True,
    rights=(
        Right(Operation.describe, ResourceType.cluster, when="for operations on the cluster", refused="no operations"),
    ),
)

BROKERS, CONTROLLERS = 1, 2


@API.handler()
async def describe_cluster(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if ctx.connection.software_name != FORWARDING_SOFTWARE_NAME:
        await ctx.broker.started.wait()
    elif not ctx.broker.log_dirs:
        raise KafkaError(ErrorCode.coordinator_not_available, "the broker has not opened its log directories yet")
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(ErrorCode.mismatched_endpoint_type, "every broker can be the controller: ask for brokers")
    if request.endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.unsupported_endpoint_type,
            f"there is no endpoint type {request.endpoint_type}; allowed: 1 (brokers)",
        )
    image = ctx.broker.image
    brokers = [
        (broker, broker.endpoints[ctx.connection.listener])
        for _, broker in sorted(image.brokers.items())
        if ctx.connection.listener in broker.endpoints and (request.include_fenced_brokers or not broker.fenced)
    ]
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        endpoint_type=request.endpoint_type,
        cluster_id=ctx.broker.cluster_id,
        controller_id=BrokerId(ctx.broker.controller_id),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=BrokerId(broker.id),
                host=endpoint.host,
                port=i32(endpoint.port),
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker, endpoint in brokers
        ),
        cluster_authorized_operations=ctx.cluster_operations(requested=request.include_cluster_authorized_operations),
    )
