"""ListGroups (16), versions 0–5.

- Lists the groups that this broker coordinates, filtered by state and type (case-insensitive; an
  unknown state or type matches nothing). COORDINATOR_LOAD_IN_PROGRESS while some are loading.
- A client that may describe the cluster gets all groups, any other client those that it may
  describe.
- v4 adds states (KIP-518); v5 types (KIP-848).
"""

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId

from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.LIST_GROUPS,
    versions=(0, 5),
    flexible=3,
    rights=(
        Right(Operation.describe, ResourceType.cluster, refused=CHECK_NEXT),
        Right(Operation.describe, ResourceType.group, refused="left out"),
    ),
)


@API.handler()
async def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type.lower() for type in request.types_filter}
    sees_all = ctx.may(Operation.describe, CLUSTER)
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        groups=tuple(
            ListedGroup(
                group_id=GroupId(group.id),
                protocol_type=group.protocol_type or "",
                group_state=group.state,
                group_type=group.type,
            )
            for group in ctx.broker.group_coordinator.list_groups()
            if (not states or group.state.lower() in states)
            and (not types or group.type in types)
            and (sees_all or ctx.may(Operation.describe, Resource.group(group.id)))
        ),
    )
