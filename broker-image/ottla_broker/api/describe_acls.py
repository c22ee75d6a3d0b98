"""DescribeAcls (29), versions 1–3.

- Lists the access control entries that a filter selects, grouped by resource pattern; needs
  DESCRIBE on the cluster.
- The pattern type MATCH selects the entries that apply to a resource: by its name, by a prefix, or
  by `*` (KIP-290).
- Without an authorizer it answers SECURITY_DISABLED, as Kafka does; a filter with an unknown code
  is INVALID_REQUEST.
- v2 is flexible; v3 adds resources of users.
"""

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.static.primitive import i8

from ottla_broker.requests.acls import check_acl_authorization, read_filter
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2, rights=(Right(Operation.describe, ResourceType.cluster),))


@API.handler()
async def describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_acl_authorization(ctx, Operation.describe)
    acl_filter = read_filter(request)
    if problem := acl_filter.find_problem():
        raise KafkaError(ErrorCode.invalid_request, problem)
    by_pattern: dict[tuple[int, str, int], list[AclDescription]] = {}
    for entry in ctx.broker.image.acls.values():
        if acl_filter.selects(entry):
            by_pattern.setdefault((entry.resource_type, entry.resource_name, entry.pattern_type), []).append(
                AclDescription(
                    principal=entry.principal,
                    host=entry.host,
                    operation=i8(entry.operation),
                    permission_type=i8(entry.permission),
                )
            )
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        resources=tuple(
            DescribeAclsResource(
                resource_type=i8(kind), resource_name=name, pattern_type=i8(pattern_type), acls=tuple(acls)
            )
            for (kind, name, pattern_type), acls in by_pattern.items()
        ),
    )
