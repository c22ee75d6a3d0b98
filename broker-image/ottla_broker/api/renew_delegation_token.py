"""RenewDelegationToken (39), versions 1–2.

- Lets a token expire later, but not after its maximum lifetime.
- A client that has not logged in, or has logged in with a token, gets
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, and any other than the owner and the renewers
  DELEGATION_TOKEN_OWNER_MISMATCH. Other errors: DELEGATION_TOKEN_NOT_FOUND,
  DELEGATION_TOKEN_EXPIRED, and DELEGATION_TOKEN_AUTH_DISABLED without
  `delegation.token.secret.key`.
- v2 is flexible.
"""

from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest
from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.delegation_tokens import change_expiry
from ottla_broker.requests.durations import NO_THROTTLE, to_milliseconds
from ottla_broker.wire.api_keys import ApiKey

API = Api(ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible=2, is_forwarded=True, rights=())


@API.handler()
async def renew_delegation_token(
    ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    period_ms = to_milliseconds(request.renew_period)
    code, expires_at = await change_expiry(
        ctx,
        "RENEW_TOKEN",
        request.hmac,
        lambda tokens: tokens.renew_token(request.hmac, ctx.connection.principal, period_ms),
    )
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp=expires_at, throttle_time=NO_THROTTLE)
