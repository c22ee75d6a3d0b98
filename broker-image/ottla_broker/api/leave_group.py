"""LeaveGroup (13), versions 0–5.

- Removes members from a group, all before one rebalance. Each member has its own error.
- An administrator removes a static member by its instance id alone, with an empty member id.
- v0–2 remove one member; v3 several (KIP-345); v5 adds a reason for each (KIP-800).
"""

from collections.abc import Sequence

from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveGroupRequestV2
from kio.schema.leave_group.v2.response import LeaveGroupResponse as LeaveGroupResponseV2
from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from ottla_broker.coordination.effects import LeavingMember
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.LEAVE_GROUP,
    versions=(0, 5),
    flexible=4,
    starts_no_task=True,
    rights=(Right(Operation.read, ResourceType.group),),
)


@API.handler(0, 2)
async def remove_member(ctx: RequestContext, request: LeaveGroupRequestV2) -> LeaveGroupResponseV2:
    (code,) = await leave_group(ctx, request.group_id, [LeavingMember(request.member_id)])
    return LeaveGroupResponseV2(throttle_time=NO_THROTTLE, error_code=code)


@API.handler(3, 5)
async def remove_members(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    members = [LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members]
    codes = await leave_group(ctx, request.group_id, members)
    return LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        members=tuple(
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
            for member, code in zip(members, codes, strict=True)
        ),
    )


async def leave_group(ctx: RequestContext, group: str, members: Sequence[LeavingMember]) -> list[ErrorCode]:
    ctx.check_authorized(Operation.read, Resource.group(group))
    return await ctx.broker.group_coordinator.leave_group(group, members)
