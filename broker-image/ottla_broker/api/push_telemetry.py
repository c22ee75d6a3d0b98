"""PushTelemetry (72), version 0 (KIP-714).

- A client pushes its metrics, which `/metrics` of this broker shows until the client has been
  silent for three push intervals.
- Errors in Kafka's order: INVALID_REQUEST without a client instance id and after a terminating
  push, THROTTLING_QUOTA_EXCEEDED before the push interval has passed (not for the first push after
  a subscription, nor for a terminating one), UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE,
  TELEMETRY_TOO_LARGE, and INVALID_RECORD for metrics that cannot be read.
"""

from typing import Final
from uuid import UUID

from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.telemetry_client import telemetry_client
from ottla_broker.telemetry.client_instances import Push
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0, rights=())

RESERVED_IDS: Final = (None, NO_UUID, UUID(int=1))


@API.handler()
async def push_telemetry(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    instance_id = request.client_instance_id
    if instance_id is None or instance_id in RESERVED_IDS:
        raise KafkaError(ErrorCode.invalid_request, f"client instance id {instance_id} is invalid")
    data = request.metrics
    push = Push(
        instance_id, int(request.subscription_id), request.terminating, int(request.compression_type), len(data)
    )
    ctx.broker.client_telemetry.push(push, telemetry_client(ctx, instance_id), data, ctx.broker.runtime.now_ms())
    return PushTelemetryResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)
