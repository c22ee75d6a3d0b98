"""CreateDelegationToken (38), versions 1–3.

- Creates a token of the client's principal, or of another one (KIP-373), which needs CREATE_TOKENS
  on that user.
- A client that has not logged in, or has logged in with a token, gets
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. A renewer that is not a user is INVALID_PRINCIPAL_TYPE.
  Without `delegation.token.secret.key` the error is DELEGATION_TOKEN_AUTH_DISABLED.
- v2 is flexible; v3 adds the owner, and the requester in the response.
"""

from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse

from ottla_broker.metadata.delegation_token_control import token_secret
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import DONE, RequestContext
from ottla_broker.requests.delegation_tokens import NEVER, check_may_use_tokens
from ottla_broker.requests.durations import NO_THROTTLE, to_milliseconds, to_timestamp
from ottla_broker.security.audit import AuditedResource
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.security.delegation_tokens import DelegationToken, TokenSecret
from ottla_broker.security.principal import Principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.CREATE_DELEGATION_TOKEN,
    versions=(1, 3),
    flexible=2,
    is_forwarded=True,
    rights=(Right(Operation.create_tokens, ResourceType.user, when="for another user"),),
)


@API.handler()
async def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner = requester = ctx.connection.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        check_may_use_tokens(ctx)
        user = Resource(ResourceType.user, str(owner))
        if owner != requester and not ctx.is_authorized(Operation.create_tokens, user):
            raise KafkaError(ErrorCode.delegation_token_authorization_failed)
        renewers = [Principal(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
        if any(renewer.kind != "User" for renewer in renewers):
            raise KafkaError(ErrorCode.invalid_principal_type)
        tokens = ctx.broker.active_controller().delegation_tokens
        token = await tokens.create_token(owner, requester, renewers, to_milliseconds(request.max_lifetime))
        ctx.record_audit("CREATE_TOKEN", AuditedResource("DELEGATION_TOKEN", f"{token.id} for {owner}"), DONE)
    except KafkaError as error:
        return build_response(error.code, owner, requester)
    return build_response(ErrorCode.none, owner, requester, token, token_secret(ctx.broker.config))


def build_response(
    code: ErrorCode,
    owner: Principal,
    requester: Principal,
    token: DelegationToken | None = None,
    secret: TokenSecret | None = None,
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=NEVER if token is None else to_timestamp(token.issued_ms),
        expiry_timestamp=NEVER if token is None else to_timestamp(token.expires_ms),
        max_timestamp=NEVER if token is None else to_timestamp(token.max_ms),
        token_id="" if token is None else token.id,
        hmac=b"" if token is None or secret is None else secret.hmac_of(token.id),
        throttle_time=NO_THROTTLE,
    )
