"""ExpireDelegationToken (40), versions 1–2.

- Lets a token expire earlier or later; with a negative period it is removed at once.
- A client that has not logged in, or has logged in with a token, gets
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, and any other than the owner and the renewers
  DELEGATION_TOKEN_OWNER_MISMATCH. Other errors: DELEGATION_TOKEN_NOT_FOUND,
  DELEGATION_TOKEN_EXPIRED, and DELEGATION_TOKEN_AUTH_DISABLED without
  `delegation.token.secret.key`.
- v2 is flexible.
"""

from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.delegation_tokens import change_expiry
from ottla_broker.requests.durations import NO_THROTTLE, to_milliseconds
from ottla_broker.wire.api_keys import ApiKey

API = Api(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), flexible=2, is_forwarded=True, rights=())


@API.handler()
async def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    period_ms = to_milliseconds(request.expiry_time_period)
    code, expires_at = await change_expiry(
        ctx,
        "EXPIRE_TOKEN",
        request.hmac,
        lambda tokens: tokens.expire_token(request.hmac, ctx.connection.principal, period_ms),
    )
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp=expires_at, throttle_time=NO_THROTTLE)
