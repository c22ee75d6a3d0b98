"""Heartbeat (12), versions 0–4.

- Extends a member's session. REBALANCE_IN_PROGRESS, which extends the session too, when the group
  rebalances.
- Succeeds while the group's partition is loading: sessions restart when it has been loaded.
- v3 adds static members.
"""

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.repeated_classic_heartbeat import remember_classic_heartbeat, run_heartbeat
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey

API = Api(
    ApiKey.HEARTBEAT,
    versions=(0, 4),
    flexible=4,
    starts_no_task=True,
    rights=(Right(Operation.read, ResourceType.group),),
)


@API.handler()
async def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    ctx.check_authorized(Operation.read, Resource.group(request.group_id))
    remember_classic_heartbeat(ctx, request)
    code = run_heartbeat(ctx, request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)
