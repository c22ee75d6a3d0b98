"""OAUTHBEARER, the server's side (RFC 7628, KIP-255, KIP-768): one exchange, and the validator of a
listener's tokens.

The client sends its token at once. To a token that is rejected the server responds with
`{"status":"invalid_token"}`, the client confirms it with one byte, and the login has failed. The
reason is in the broker's log alone.
"""

import logging
import re
from collections.abc import Callable
from typing import Final

from ottla_broker.security.jwks import JsonWebKeySet
from ottla_broker.security.oauth_token import AccessToken, InvalidToken, TokenRules, read_key_id, validate_token
from ottla_broker.security.principal import Principal
from ottla_broker.security.scram import INVALID_CREDENTIALS, SaslAuthenticationError
from ottla_broker.wire.client_security import OAUTHBEARER

logger = logging.getLogger(__name__)

REJECTED: Final = '{"status":"invalid_token"}'
CONFIRMATION: Final = b"\x01"
_AUTHORIZATION_ID: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = "[A-Za-z]+=[\\x21-\\x7e \t\r\n]+\x01"
_FIRST_MESSAGE: Final = re.compile(f"n,(?:a=({_AUTHORIZATION_ID}))?,\x01((?:{_PAIR})*)\x01")
_BEARER: Final = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class TokenValidator:
    """`now_ms`: milliseconds since 1970."""

    def __init__(self, keys: JsonWebKeySet, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self.now_ms = now_ms

    async def prepare(self, token: str) -> None:
        """Waits for the key of the token where it is not known yet. Raises InvalidToken."""
        if key_id := read_key_id(token):
            await self._keys.wait_for_key(key_id)

    def validate(self, token: str) -> AccessToken:
        """Raises InvalidToken."""
        return validate_token(token, self._keys.keys, self._rules)


class OauthExchange:
    """`principal`: set once the token was accepted. `lifetime_s`: until it expires."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._is_rejected = False
        self.username = ""  # always: a token that was not accepted names no user
        self.principal: Principal | None = None
        self.lifetime_s: float | None = None

    async def prepare(self, message: bytes) -> None:
        """Fetches the keys that `respond` needs, which may take time. Raises nothing: `respond`
        rejects an invalid message.
        """
        try:
            await self._validator.prepare(read_first_message(message)[1])
        except (SaslAuthenticationError, InvalidToken):
            return

    def respond(self, message: bytes) -> bytes:
        """Raises SaslAuthenticationError."""
        if self._is_rejected:
            raise SaslAuthenticationError(
                REJECTED if message == CONFIRMATION else f"{INVALID_CREDENTIALS} {OAUTHBEARER}"
            )
        authorization_id, token = read_first_message(message)
        try:
            accepted = self._validator.validate(token)
        except InvalidToken as reason:
            logger.info("rejecting a token: %s", reason)
            self._is_rejected = True
            return REJECTED.encode()
        if authorization_id not in ("", accepted.subject):
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({accepted.subject})"
            )
        self.lifetime_s = (accepted.expires_ms - self._validator.now_ms()) / 1000
        self.principal = Principal("User", accepted.subject)
        return b""


def read_first_message(message: bytes) -> tuple[str, str]:
    """Authorization id, empty without one, and token. Raises SaslAuthenticationError."""
    found = _FIRST_MESSAGE.fullmatch(message.decode(errors="replace"))
    pairs = dict(pair.split("=", 1) for pair in found.group(2).split("\x01") if pair) if found else {}
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if found is None or bearer is None:
        raise SaslAuthenticationError(f"{INVALID_CREDENTIALS} {OAUTHBEARER}")
    return found.group(1) or "", bearer.group(1)
