"""Sessions of users who have logged in, in this broker's memory.

A session ends after IDLE_S without a request, after MAX_AGE_S in any case, when the token or
certificate of its login expires, and as soon as a credential of its user changes or is removed.
Another broker, and this one after a restart, ask for a new login.
"""

import secrets
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.security.principal import Principal

IDLE_S: Final = 30 * 60.0
MAX_AGE_S: Final = 8 * 3600.0
MAX_SESSIONS: Final = 1000
"""Sessions of all users; the oldest one ends when there are more."""
TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Login:
    """A user who has authenticated. `lifetime_s`: the session ends after it at the latest.
    `find_credentials`: finds the user's present credentials. `is_presented`: for a login with a
    certificate, False for a request on a connection that presents no certificate of the principal;
    always True for other logins.
    """

    principal: Principal
    lifetime_s: float = MAX_AGE_S
    find_credentials: Callable[[], Hashable] = lambda: None
    is_presented: Callable[[web.Request], bool] = lambda http: True


@dataclass(slots=True)
class Session:
    """`form_token`: in every form that changes something, so that no other site can send it.
    `credentials`: those of the user at the login. `used_s`, `end_s`: time of the last request and
    of the end, by the clock of Sessions.
    """

    login: Login
    form_token: str
    used_s: float
    end_s: float
    credentials: Hashable


class Sessions:
    """Sessions by the tokens that browsers keep in a cookie. `now_s`: seconds by any clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._by_token: dict[str, Session] = {}

    def open(self, login: Login) -> str:
        """Opens a session and returns its token."""
        while len(self._by_token) >= MAX_SESSIONS:
            del self._by_token[next(iter(self._by_token))]
        token, now_s = secrets.token_urlsafe(TOKEN_BYTES), self._now_s()
        end_s = now_s + min(MAX_AGE_S, login.lifetime_s)
        form_token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_token[token] = Session(login, form_token, now_s, end_s, login.find_credentials())
        return token

    def find(self, token: str) -> Session | None:
        """The session, which counts as used now; None if it has ended."""
        if not self.is_open(token):
            return None
        session = self._by_token[token]
        session.used_s = self._now_s()
        return session

    def is_open(self, token: str) -> bool:
        """True until the session ends; does not count as a use of it."""
        session = self._by_token.get(token)
        if session is None:
            return False
        now_s = self._now_s()
        has_expired = now_s - session.used_s > IDLE_S or now_s > session.end_s
        if has_expired or session.credentials != session.login.find_credentials():
            del self._by_token[token]
            return False
        return True

    def close(self, token: str) -> None:
        self._by_token.pop(token, None)
