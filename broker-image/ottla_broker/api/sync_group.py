"""SyncGroup (14), versions 0–5.

- The group's leader sends all assignments, and every member gets its own once they are replicated.
- A member of a stable group gets its current assignment; a member of a rebalancing group has to
  rejoin.
- From v5 on the request names the protocol that the client got from JoinGroup;
  INCONSISTENT_GROUP_PROTOCOL if the group has another one.
- v3 adds static members; v5 protocol type and name (KIP-559).
"""

from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from ottla_broker.coordination.effects import SyncRequest, SyncResult
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.SYNC_GROUP,
    versions=(0, 5),
    flexible=4,
    starts_no_task=True,
    rights=(Right(Operation.read, ResourceType.group),),
)

PROTOCOL_REQUIRED_SINCE = 5


@API.handler()
async def sync_group(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if ctx.version >= PROTOCOL_REQUIRED_SINCE and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.inconsistent_group_protocol, "protocol type and name are missing")
    ctx.check_authorized(Operation.read, Resource.group(request.group_id))
    return build_sync_response(
        await ctx.broker.group_coordinator.sync_group(request.group_id, build_sync_request(request))
    )


def build_sync_request(request: SyncGroupRequest) -> SyncRequest:
    return SyncRequest(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {one.member_id: one.assignment for one in request.assignments},
    )


def build_sync_response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
