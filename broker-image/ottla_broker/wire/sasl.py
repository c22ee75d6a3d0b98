"""Logging in on a connection: SaslHandshake (17), version 1, and SaslAuthenticate (36).

https://kafka.apache.org/protocol.html#sasl_handshake. A session that the server lets live for so long only (KIP-368) ends with its connection, and the
next one logs in anew.
"""

import base64
import secrets
from typing import TYPE_CHECKING

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from ottla_broker.wire.client_security import PLAIN, ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.scram import Refused, ScramClient

if TYPE_CHECKING:
    from ottla_broker.wire.channel import Channel

NONCE_BYTES = 24


async def log_in(channel: "Channel", secured: ClientSecurity) -> None:
    """KafkaError: UNSUPPORTED_SASL_MECHANISM, SASL_AUTHENTICATION_FAILED; ConnectionError from servers that hang up instead."""
    answer = await channel.send(SaslHandshakeRequest(mechanism=secured.mechanism))
    if answer.error_code is not ErrorCode.none:
        served = ", ".join(answer.mechanisms) or "none"
        raise KafkaError(
            answer.error_code, f"it does not serve SASL mechanism {secured.mechanism}; it serves: {served}"
        )
    if secured.mechanism == PLAIN:
        await _say(channel, f"\0{secured.username}\0{secured.password}".encode())
        return
    nonce = base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
    scram = ScramClient(secured.mechanism, secured.username, secured.password, nonce)
    try:
        final = scram.final(await _say(channel, scram.first))
        scram.verify(await _say(channel, final))
    except (Refused, KeyError, ValueError) as reason:
        raise KafkaError(ErrorCode.sasl_authentication_failed, f"{secured.mechanism}: {reason}") from reason


async def _say(channel: "Channel", message: bytes) -> bytes:
    answer = await channel.send(SaslAuthenticateRequest(auth_bytes=message))
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(answer.error_code, answer.error_message or answer.error_code.name)
    return bytes(answer.auth_bytes)
