"""DeleteGroups (42), versions 0–2.

- Deletes groups without members, with their offsets (KIP-229). Each group has its own error:
  GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
- The response is sent when the deletion is replicated.
"""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from ottla_broker.requests.api import Api, Right, catch_error
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey

API = Api(ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2, rights=(Right(Operation.delete, ResourceType.group),))


@API.handler()
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    errors = {group: await catch_error(delete_group(ctx, group)) for group in dict.fromkeys(request.groups_names)}
    return DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(DeletableGroupResult(group_id=group, error_code=error.code) for group, error in errors.items()),
    )


async def delete_group(ctx: RequestContext, group: str) -> None:
    ctx.check_authorized(Operation.delete, Resource.group(group))
    await ctx.broker.group_coordinator.delete_group(group)
