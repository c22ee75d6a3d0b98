"""DeleteGroups (42), versions 0–2.

- Deletes groups without members, with their offsets (KIP-229). Each group has its own error: GROUP_ID_NOT_FOUND,
  NON_EMPTY_GROUP.
- The response is sent when the deletion is replicated.
"""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.types import GroupId

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2)


@API.handler()
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple([await delete_group(ctx, group) for group in dict.fromkeys(request.groups_names)]),
    )


async def delete_group(ctx: RequestContext, group: GroupId) -> DeletableGroupResult:
    try:
        if not ctx.is_authorized(Operation.delete, Resource.group(group)):
            raise KafkaError(ErrorCode.group_authorization_failed)
        await ctx.broker.group_coordinator.delete_group(group)
    except KafkaError as reason:
        return DeletableGroupResult(group_id=group, error_code=reason.code)
    return DeletableGroupResult(group_id=group, error_code=ErrorCode.none)
