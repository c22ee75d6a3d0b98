"""DescribeGroups (15), versions 0–6.

- Describes classic groups: state, and members with their assignments. The protocol and the members'
  metadata are included only while the group is stable.
- A group that does not exist or has another protocol (KIP-848, KIP-932, KIP-1071) is Dead, without
  an error; from v6 on GROUP_ID_NOT_FOUND with a message (KIP-1043).
- v3 adds authorized operations (KIP-430); v4 static members; v6 error messages.
"""

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kio.schema.types import GroupId

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import OPERATIONS_NOT_REQUESTED, RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5, rights=(Right(Operation.describe, ResourceType.group),))

NOT_FOUND_SINCE = 6


@API.handler()
async def describe_groups(ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(describe_group(ctx, group, request.include_authorized_operations) for group in request.groups),
    )


def describe_group(ctx: RequestContext, group_id: GroupId, include_operations: bool) -> DescribedGroup:
    resource = Resource.group(group_id)
    try:
        ctx.check_authorized(Operation.describe, resource)
        group = ctx.broker.group_coordinator.describe_group(group_id)
    except KafkaError as reason:
        return build_error_group(ctx, group_id, reason, include_operations)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group.state is GroupState.stable else "",
        members=describe_members(group),
        authorized_operations=ctx.authorized_operations(resource, requested=include_operations),
    )


def build_error_group(
    ctx: RequestContext, group_id: GroupId, reason: KafkaError, include_operations: bool
) -> DescribedGroup:
    code, message, state, operations = reason.code, reason.message, "", OPERATIONS_NOT_REQUESTED
    if code is ErrorCode.group_id_not_found:
        state = GroupState.dead
        if ctx.version < NOT_FOUND_SINCE:
            code, message = ErrorCode.none, None
            if include_operations:
                operations = ctx.authorized_operations(Resource.group(group_id))
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=operations,
    )


def describe_members(group: ClassicGroup) -> tuple[DescribedGroupMember, ...]:
    is_stable = group.state is GroupState.stable
    return tuple(
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    )
