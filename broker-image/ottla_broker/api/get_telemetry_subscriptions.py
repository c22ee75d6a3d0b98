"""GetTelemetrySubscriptions (71), version 0 (KIP-714).

- A client asks which of its own metrics it should push, and how often. A client without an instance
  id gets one. The `match` of client-metrics resources selects clients. A client that no resource
  selects pushes nothing and asks again after five minutes.
- THROTTLING_QUOTA_EXCEEDED before the push interval has passed, unless the subscription has changed
  or the last push was UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE.
- The broker lists the API if it can read metrics: with the extra `telemetry`.
"""

from typing import Final, cast

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.static.primitive import i8, i32

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE, to_duration
from ottla_broker.requests.telemetry_client import telemetry_client
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import Compression
from ottla_broker.wire.errors import ErrorCode

API = Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0, rights=())

ACCEPTED_COMPRESSION: Final = tuple(
    i8(int(one)) for one in (Compression.zstd, Compression.lz4, Compression.gzip, Compression.snappy)
)
"""The compressions that clients may use, in Kafka's order of preference. Uncompressed metrics are
accepted, too."""


@API.handler()
async def get_telemetry_subscriptions(
    ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = ctx.broker.client_telemetry
    instance_id = request.client_instance_id or ctx.broker.runtime.new_uuid()
    client = telemetry_client(ctx, instance_id)
    subscription = telemetry.instances.get_subscription(instance_id, client, ctx.broker.runtime.now_ms())
    return GetTelemetrySubscriptionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        client_instance_id=instance_id,
        subscription_id=cast(i32, subscription.id),
        accepted_compression_types=ACCEPTED_COMPRESSION,
        push_interval=to_duration(subscription.interval_ms),
        telemetry_max_bytes=cast(i32, telemetry.instances.max_bytes),
        delta_temporality=True,
        requested_metrics=subscription.metrics,
    )
