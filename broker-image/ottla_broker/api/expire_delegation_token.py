"""ExpireDelegationToken (40), versions 1–2.

- Lets a token expire earlier or later; with a negative period it is removed at once.
- A client that has not logged in, or has logged in with a token, gets
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; anybody but the owner and the renewers
  DELEGATION_TOKEN_OWNER_MISMATCH.
- v2 is flexible.
"""

from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.delegation_tokens import NEVER, check_may_use_tokens, timestamp
from ottla_broker.requests.durations import NO_THROTTLE, to_milliseconds
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), flexible=2, is_forwarded=True)


@API.handler()
async def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        check_may_use_tokens(ctx)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp=NEVER, throttle_time=NO_THROTTLE)
    tokens, period_ms = ctx.broker.active_controller().delegation_tokens, to_milliseconds(request.expiry_time_period)
    expires_ms = await tokens.expire_token(request.hmac, ctx.connection.principal, period_ms)
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.none, expiry_timestamp=timestamp(expires_ms), throttle_time=NO_THROTTLE
    )
