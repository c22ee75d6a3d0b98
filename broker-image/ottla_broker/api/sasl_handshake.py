"""SaslHandshake (17), versions 0–1: begins the authentication of a connection.

- Names the mechanism; the response lists those that the listener has. Another one is
  UNSUPPORTED_SASL_MECHANISM.
- v1 is followed by SaslAuthenticate (KIP-152), v0 by bare tokens with their size in front.
- The error is ILLEGAL_SASL_STATE on a listener without SASL, and when authentication is already in
  progress. After any error on a listener with SASL the broker closes the connection.
"""

from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None, rights=())


@API.handler()
async def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    session = ctx.connection.sasl
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state)
    try:
        session.begin(request.mechanism, bare_tokens=ctx.version == 0)
    except KafkaError as error:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=session.sasl.mechanisms)
    return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=session.sasl.mechanisms)
