"""ConsumerGroupHeartbeat (68), versions 0–1: refused.

- The newer group protocol (KIP-848) is not spoken. Apache Kafka answers UNSUPPORTED_VERSION where it is switched off (`group.coordinator.rebalance.protocols`
  is `classic`): clients that were asked to use it say so and end, or go back to the classic one (franz-go). librdkafka looks for another coordinator for ever
  where the API is not even offered.
"""

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0)


@API.handler()
async def consumer_group_heartbeat(
    _: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    raise KafkaError(
        ErrorCode.unsupported_version,
        f"group {request.group_id!r}: group.protocol=consumer is not spoken here; allowed: classic",
    )
