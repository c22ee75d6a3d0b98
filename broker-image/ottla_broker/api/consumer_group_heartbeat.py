"""ConsumerGroupHeartbeat (68), versions 0–1: rejected.

- The consumer group protocol (KIP-848) is not implemented. Like Apache Kafka where it is disabled
  (`group.coordinator.rebalance.protocols=classic`), the broker returns UNSUPPORTED_VERSION: clients
  fail with the message, or fall back to the classic protocol (franz-go). librdkafka would look for
  another coordinator for ever if the API were not served.
"""

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0, rights=())


@API.handler()
async def consumer_group_heartbeat(
    _: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    raise KafkaError(
        ErrorCode.unsupported_version,
        f"group {request.group_id!r}: group.protocol=consumer is not spoken here; allowed: classic",
    )
