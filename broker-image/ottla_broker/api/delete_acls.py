"""DeleteAcls (31), versions 1–3.

- Deletes the access control entries that each filter selects, in one commit, and returns them;
  needs ALTER on the cluster.
- A filter with an unknown code is INVALID_REQUEST; the other filters are applied.
- Without an authorizer each filter is SECURITY_DISABLED, as in Kafka.
- v2 is flexible; v3 adds resources of users.
"""

from collections.abc import Sequence

from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from kio.static.primitive import i8

from ottla_broker.requests.acls import check_acl_authorization, read_filter
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.DELETE_ACLS,
    versions=(1, 3),
    flexible=2,
    is_forwarded=True,
    rights=(Right(Operation.alter, ResourceType.cluster),),
)


@API.handler()
async def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    try:
        check_acl_authorization(ctx, Operation.alter)
        filters = [read_filter(one) for one in request.filters]
        problems = [one.find_problem() for one in filters]
        valid = [one for one, problem in zip(filters, problems, strict=True) if problem is None]
        deleted = iter(await ctx.broker.active_controller().delete_acls(valid))
    except KafkaError as error:
        return build_response([build_result(error.code, error.message)] * len(request.filters))
    return build_response(
        [
            build_result(ErrorCode.none, deleted=next(deleted))
            if problem is None
            else build_result(ErrorCode.invalid_request, problem)
            for problem in problems
        ]
    )


def build_result(
    code: ErrorCode, message: str | None = None, deleted: Sequence[AccessControlEntry] = ()
) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=code, error_message=message, matching_acls=tuple(describe_deleted(entry) for entry in deleted)
    )


def describe_deleted(entry: AccessControlEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=i8(entry.resource_type),
        resource_name=entry.resource_name,
        pattern_type=i8(entry.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=i8(entry.operation),
        permission_type=i8(entry.permission),
    )


def build_response(results: Sequence[DeleteAclsFilterResult]) -> DeleteAclsResponse:
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=tuple(results))
