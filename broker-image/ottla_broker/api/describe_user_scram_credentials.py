"""DescribeUserScramCredentials (50), version 0.

- Lists the mechanisms and iterations of users' SCRAM credentials (KIP-554), never keys; needs
  DESCRIBE on the cluster.
- Without names all users are described. An unknown user is RESOURCE_NOT_FOUND, one named twice
  DUPLICATE_RESOURCE.
"""

from collections import Counter

from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.static.primitive import i8, i32

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    flexible=0,
    rights=(Right(Operation.describe, ResourceType.cluster),),
)

Result = DescribeUserScramCredentialsResult


@API.handler()
async def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not ctx.is_authorized(Operation.describe, CLUSTER):
        return build_refusal(request)
    by_user: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in sorted(ctx.broker.image.scram_credentials.items()):
        by_user.setdefault(name, []).append(
            CredentialInfo(mechanism=i8(mechanism), iterations=i32(credential.iterations))
        )
    counts = Counter(user.name for user in request.users or ()) or Counter(by_user.keys())
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(describe_user(name, by_user.get(name, []), count) for name, count in counts.items()),
    )


def build_refusal(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """The response to an unauthorized client. As in Kafka it has a result for each requested user,
    without the name.
    """
    code = ErrorCode.cluster_authorization_failed
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=None,
        results=tuple(
            Result(user="", error_code=code, error_message=None, credential_infos=()) for _ in request.users or ()
        ),
    )


def describe_user(name: str, credentials: list[CredentialInfo], times_named: int) -> Result:
    if times_named > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return Result(user=name, error_code=ErrorCode.duplicate_resource, error_message=message, credential_infos=())
    if not credentials:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return Result(user=name, error_code=ErrorCode.resource_not_found, error_message=message, credential_infos=())
    return Result(user=name, error_code=ErrorCode.none, error_message=None, credential_infos=tuple(credentials))
