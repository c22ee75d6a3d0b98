"""SaslAuthenticate (36), versions 0–2: carries the tokens of a SASL exchange (KIP-152).

- PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. A failure is SASL_AUTHENTICATION_FAILED; it
  is answered after `connection.failed.authentication.delay.ms`, and the connection closes. Before a
  SaslHandshake, and on a listener without SASL, the error is ILLEGAL_SASL_STATE.
- v1 adds the lifetime of the session, within which the client has to authenticate again (KIP-368).
  v2 is flexible.
"""

import datetime

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.static.primitive import i64Timedelta

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.login import respond_to_token
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2, rights=())


@API.handler()
async def sasl_authenticate(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    session = ctx.connection.sasl
    if session is None:
        raise KafkaError(ErrorCode.illegal_sasl_state, "this listener has no SASL")
    token = await respond_to_token(ctx, session, request.auth_bytes)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=token,
        session_lifetime=i64Timedelta.parse(datetime.timedelta(milliseconds=session.lifetime_ms)),
    )
