"""SASL, the client's side: PLAIN, and SCRAM (RFC 5802, RFC 7677, KIP-84).

Requests: SaslHandshake (17) version 1, SaslAuthenticate (36);
https://kafka.apache.org/protocol.html#sasl_handshake. A session with a limited lifetime (KIP-368)
ends with its connection, and the next connection authenticates again.

Names and passwords are used as they are: SASLprep (RFC 4013) changes nothing in ASCII, and Kafka's
server does not apply it to other characters.
"""

import base64
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla_broker.wire.client_security import PLAIN, ClientSecurity
from ottla_broker.wire.digests import are_equal, compute_hash, compute_hmac, derive_key
from ottla_broker.wire.errors import ErrorCode, KafkaError

SCRAM_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS: Final = 4096  # as in Kafka; fewer make a stolen exchange easy to attack
NONCE_BYTES: Final = 24
NO_CHANNEL_BINDING: Final = "n,,"

Send = Callable[[Any], Awaitable[Any]]


async def authenticate(send: Send, security: ClientSecurity) -> None:
    """Authenticates the connection on which `send` sends requests.

    Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, SASL_AUTHENTICATION_FAILED, and
    ILLEGAL_SASL_STATE from a listener without SASL unless the login is optional; ConnectionError
    from servers that close the connection instead.
    """
    # Takes 3 ms, and a broker that logs in nowhere needs none of these messages.
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    response = await send(SaslHandshakeRequest(mechanism=security.mechanism))
    if response.error_code is ErrorCode.illegal_sasl_state and security.is_login_optional:
        return  # the listener has no SASL
    if response.error_code is not ErrorCode.none:
        enabled = ", ".join(response.mechanisms) or "none"
        message = f"SASL mechanism {security.mechanism} is not enabled at the broker; enabled: {enabled}"
        raise KafkaError(response.error_code, message)
    if security.mechanism == PLAIN:
        await _exchange(send, f"\0{security.username}\0{security.password}".encode())
        return
    nonce = base64.b64encode(os.urandom(NONCE_BYTES)).decode()
    scram = ScramClient(security.mechanism, security.username, security.password, nonce)
    try:
        final = scram.final_message(await _exchange(send, scram.first_message))
        scram.verify(await _exchange(send, final))
    except (ScramClientError, KeyError, ValueError) as reason:
        raise KafkaError(ErrorCode.sasl_authentication_failed, f"{security.mechanism}: {reason}") from reason


async def _exchange(send: Send, message: bytes) -> bytes:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest

    response = await send(SaslAuthenticateRequest(auth_bytes=message))
    if response.error_code is not ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or response.error_code.name)
    return bytes(response.auth_bytes)


class ScramClientError(Exception):
    """The server rejects the client, or does not prove that it knows the password."""


class ScramClient:
    """One SCRAM exchange, in which each side proves that it knows the password. Pure.

    Send `first_message`, pass the response to `final_message`, send its result, and pass the
    response to `verify`. `nonce` is printable, without commas, and unique. Raises
    ScramClientError; KeyError or ValueError for a server's message without a field, or with an
    invalid one.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._digest = SCRAM_DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._first_bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._server_signature = b""

    @property
    def first_message(self) -> bytes:
        return (NO_CHANNEL_BINDING + self._first_bare).encode()

    def final_message(self, server_first: bytes) -> bytes:
        fields = _parse_message(server_first)
        if not fields["r"].startswith(self._nonce) or fields["r"] == self._nonce:
            raise ScramClientError("the server's nonce does not extend the client's nonce")
        iterations = int(fields["i"])
        if iterations < MIN_ITERATIONS:
            raise ScramClientError(f"the server asks for {iterations} iterations; the minimum is {MIN_ITERATIONS}")
        salted = derive_key(self._digest, self._password, base64.b64decode(fields["s"]), iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(NO_CHANNEL_BINDING.encode()).decode()},r={fields['r']}"
        auth_message = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        signature = self._hmac(compute_hash(self._digest, client_key), auth_message)
        proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), auth_message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        signature = base64.b64decode(_parse_message(server_final).get("v", ""))
        if not are_equal(signature, self._server_signature):
            raise ScramClientError("the server does not know the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return compute_hmac(self._digest, key, message)


def _parse_message(message: bytes) -> dict[str, str]:
    """Raises ScramClientError for a server's error (`e=`) and for bytes that are not a SCRAM
    message."""
    try:
        fields = dict(part.split("=", 1) for part in message.decode().split(","))
    except ValueError:
        raise ScramClientError("the server's response is not a SCRAM message") from None
    if "e" in fields:
        raise ScramClientError(fields["e"])
    return fields
