"""DescribeDelegationToken (41), versions 1–3.

- Lists the tokens that the client owns or may renew, and others with DESCRIBE on the token or
  DESCRIBE_TOKENS on its owner (KIP-373); if the request has a list of owners, only theirs.
- The response has the HMACs: a client that may describe a token can log in with it.
- A client that has not logged in, or has logged in with a token, gets
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. Without `delegation.token.secret.key` the error is
  DELEGATION_TOKEN_AUTH_DISABLED.
- v2 is flexible; v3 adds the requester of a token.
"""

from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
from kio.schema.describe_delegation_token.v3.response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kio.static.primitive import i64

from ottla_broker.metadata.delegation_token_control import token_secret
from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.delegation_tokens import check_may_use_tokens
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.security.delegation_tokens import DelegationToken, TokenSecret
from ottla_broker.security.principal import Principal, parse_principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    versions=(1, 3),
    flexible=2,
    rights=(
        Right(
            Operation.describe,
            ResourceType.delegation_token,
            when="for tokens of others",
            refused=CHECK_NEXT,
        ),
        Right(Operation.describe_tokens, ResourceType.user, when="for tokens of others", refused="left out"),
    ),
)


@API.handler()
async def describe_delegation_token(
    ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    check_may_use_tokens(ctx)
    secret = token_secret(ctx.broker.config)
    owners = (
        None if request.owners is None else [Principal(it.principal_type, it.principal_name) for it in request.owners]
    )
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.none,
        tokens=tuple(
            describe_token(token, secret)
            for token in ctx.broker.image.delegation_tokens.values()
            if (owners is None or any(token.is_of(owner) for owner in owners)) and may_describe(ctx, token)
        ),
        throttle_time=NO_THROTTLE,
    )


def may_describe(ctx: RequestContext, token: DelegationToken) -> bool:
    return (
        token.is_of(ctx.connection.principal)
        or ctx.may(Operation.describe, Resource(ResourceType.delegation_token, token.id))
        or ctx.may(Operation.describe_tokens, Resource(ResourceType.user, token.owner))
    )


def describe_token(token: DelegationToken, secret: TokenSecret) -> DescribedDelegationToken:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    renewers = [parse_principal(renewer) for renewer in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=i64(token.issued_ms),
        expiry_timestamp=i64(token.expires_ms),
        max_timestamp=i64(token.max_ms),
        token_id=token.id,
        hmac=secret.hmac_of(token.id),
        renewers=tuple(
            DescribedDelegationTokenRenewer(principal_type=one.kind, principal_name=one.name) for one in renewers
        ),
    )
