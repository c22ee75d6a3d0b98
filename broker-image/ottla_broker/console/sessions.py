"""Sessions of users who have logged in, in this broker's memory.

A session ends after IDLE_S without a request, after MAX_AGE_S in any case, and as soon as a
credential of its user changes or is removed. Another broker, and this one after a restart, ask for
a new login.
"""

import secrets
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.config.listener_security import listener_sasl
from ottla_broker.security.principal import Principal
from ottla_broker.security.scram import MECHANISMS

IDLE_S: Final = 30 * 60.0
MAX_AGE_S: Final = 8 * 3600.0
MAX_SESSIONS: Final = 1000
"""Sessions of all users; the oldest one ends when there are more."""
TOKEN_BYTES: Final = 32


@dataclass(slots=True)
class Session:
    """`form_token`: in every form that changes something, so that no other site can send it.
    `credentials`: those of the user at the login.
    """

    principal: Principal
    form_token: str
    opened_s: float
    used_s: float
    credentials: Hashable


class Sessions:
    """By tokens that browsers keep in a cookie. `listener`: the one whose users log in."""

    def __init__(self, broker: Broker, listener: str, now_s: Callable[[], float]) -> None:
        self._broker = broker
        self._listener = listener
        self._now_s = now_s
        self._by_token: dict[str, Session] = {}

    def open(self, name: str) -> str:
        """The token of a new session."""
        while len(self._by_token) >= MAX_SESSIONS:
            del self._by_token[next(iter(self._by_token))]
        token, now_s = secrets.token_urlsafe(TOKEN_BYTES), self._now_s()
        principal = Principal("User", name)
        self._by_token[token] = Session(
            principal, secrets.token_urlsafe(TOKEN_BYTES), now_s, now_s, self._credentials_of(name)
        )
        return token

    def find(self, token: str) -> Session | None:
        """None if it has ended. Else it is in use now."""
        if not self.is_open(token):
            return None
        session = self._by_token[token]
        session.used_s = self._now_s()
        return session

    def is_open(self, token: str) -> bool:
        session = self._by_token.get(token)
        if session is None:
            return False
        now_s = self._now_s()
        has_expired = now_s - session.used_s > IDLE_S or now_s - session.opened_s > MAX_AGE_S
        if has_expired or session.credentials != self._credentials_of(session.principal.name):
            del self._by_token[token]
            return False
        return True

    def close(self, token: str) -> None:
        self._by_token.pop(token, None)

    def _credentials_of(self, name: str) -> Hashable:
        sasl = listener_sasl(self._broker.config, self._listener)
        scram = self._broker.image.scram_credentials
        stored = tuple(scram.get((name, MECHANISMS[one])) for one in sasl.mechanisms if one in MECHANISMS)
        return (sasl.plain_users.get(name), *stored)
