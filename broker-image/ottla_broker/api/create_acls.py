"""CreateAcls (30), versions 1–3.

- Creates access control entries (KIP-11, KIP-290); needs ALTER on the cluster. One that exists is
  not created again.
- Each entry has its own error: INVALID_REQUEST with the allowed values. The valid ones are created
  in one commit.
- Without an authorizer each one is SECURITY_DISABLED, as in Kafka.
- v2 is flexible; v3 adds resources of users.
"""

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse

from ottla_broker.requests.acls import check_acl_authorization
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.acls import AccessControlEntry, find_problem
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.CREATE_ACLS,
    versions=(1, 3),
    flexible=2,
    is_forwarded=True,
    rights=(Right(Operation.alter, ResourceType.cluster),),
)


@API.handler()
async def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    try:
        check_acl_authorization(ctx, Operation.alter)
        entries = [read_entry(creation) for creation in request.creations]
        problems = [find_problem(entry) for entry in entries]
        valid = [entry for entry, problem in zip(entries, problems, strict=True) if problem is None]
        await ctx.broker.active_controller().create_acls(valid)
    except KafkaError as error:
        return build_response([build_result(error.code, error.message)] * len(request.creations))
    return build_response(
        [
            build_result(ErrorCode.none) if problem is None else build_result(ErrorCode.invalid_request, problem)
            for problem in problems
        ]
    )


def read_entry(creation: AclCreation) -> AccessControlEntry:
    return AccessControlEntry(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def build_result(code: ErrorCode, message: str | None = None) -> AclCreationResult:
    return AclCreationResult(error_code=code, error_message=message)


def build_response(results: list[AclCreationResult]) -> CreateAclsResponse:
    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=tuple(results))
