"""Delegation tokens (KIP-48): a client that has logged in gets one, with which others log in by
SCRAM as its owner.

The token's id is the SCRAM username, and the base64 of its HMAC the password. The HMAC-SHA512 of
the id under `delegation.token.secret.key` is stored nowhere: every broker computes it.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import msgspec

from ottla_broker.security.principal import Principal, parse_principal
from ottla_broker.security.scram import ScramCredential, ScramMechanism, make_credential
from ottla_broker.wire.digests import compute_hmac
from ottla_broker.wire.sasl import MIN_ITERATIONS

MAX_CACHED_CREDENTIALS: Final = 4096
_SALT_KEY: Final = b"salt of "


class DelegationToken(msgspec.Struct, frozen=True):
    """`owner`, `requester`, `renewers`: texts of principals. `expires_ms`: unless it is renewed,
    which is possible until `max_ms`.
    """

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def is_of(self, principal: Principal) -> bool:
        """True for the owner of the token and for those that may renew it."""
        return str(principal) in (self.owner, *self.renewers)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """The credential of a login with a token, and the token's owner, who is the principal of the
    connection then.
    """

    owner: Principal
    credential: ScramCredential = field(repr=False)
    lifetime_s: float


FindToken = Callable[[str, ScramMechanism], TokenLogin | None]


class TokenSecret:
    """`delegation.token.secret.key`."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._credential = lru_cache(MAX_CACHED_CREDENTIALS)(self._make_credential)

    def hmac_of(self, token_id: str) -> bytes:
        return compute_hmac("sha512", self._key, token_id.encode())

    def login_of(self, token: DelegationToken, mechanism: ScramMechanism, now_ms: int) -> TokenLogin:
        owner = replace(parse_principal(token.owner), token_authenticated=True)
        return TokenLogin(owner, self._credential(token.id, mechanism), (token.expires_ms - now_ms) / 1000)

    def _make_credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """The salt depends on the token alone, so that every exchange shows the same one."""
        salt = compute_hmac("sha256", self._key, _SALT_KEY + token_id.encode())
        password = base64.b64encode(self.hmac_of(token_id)).decode()
        return make_credential(mechanism, password, salt, MIN_ITERATIONS)
