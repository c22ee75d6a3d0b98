"""JoinGroup (11), versions 0–9.

- Waits until the group's next generation begins, then returns its leader. Only the leader gets all
  members.
- A new dynamic member first gets its id (MEMBER_ID_REQUIRED) from v4 on, so that a lost response
  leaves no orphaned member (KIP-394).
- A static member that returns to a stable group keeps its place without a rebalance (KIP-345); from
  v9 on the response to a returning leader says that it must not assign partitions (KIP-814).
- Rejected: an empty group id, a session timeout outside the broker's limits, protocols of which
  none is supported by all members, a full group.
- v1 adds a rebalance timeout (before, the session timeout); v5 static members; v7 protocol type; v8
  a reason (KIP-800).
"""

from typing import cast

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.static.primitive import i32

from ottla_broker.coordination.effects import JoinRequest, JoinResult
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE, to_milliseconds
from ottla_broker.requests.group_requests import client_host
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.JOIN_GROUP,
    versions=(0, 9),
    flexible=6,
    starts_no_task=True,
    rights=(Right(Operation.read, ResourceType.group),),
)

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


@API.handler()
async def join_group(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        ctx.check_authorized(Operation.read, Resource.group(request.group_id))
        result = await ctx.broker.group_coordinator.join_group(request.group_id, build_join_request(ctx, request))
    except KafkaError as reason:
        member_id = "" if reason.code is ErrorCode.group_authorization_failed else request.member_id
        result = JoinResult(member_id, reason.code)
    return build_join_response(result)


def build_join_response(result: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=result.error,
        generation_id=cast(i32, result.generation),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ),
    )


def build_join_request(ctx: RequestContext, request: JoinGroupRequest) -> JoinRequest:
    session_ms = to_milliseconds(request.session_timeout)
    rebalance_ms = to_milliseconds(request.rebalance_timeout)
    metadata_of_name: dict[str, bytes] = {}
    for protocol in request.protocols:  # of protocols with the same name, Kafka keeps the first
        metadata_of_name.setdefault(protocol.name, protocol.metadata)
    return JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=client_host(ctx),
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        session_timeout_ms=session_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(metadata_of_name.items()),
        needs_member_id=ctx.version >= MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=ctx.version >= SKIP_ASSIGNMENT_SINCE,
        reason=request.reason or "",
    )
