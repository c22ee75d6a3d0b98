"""Logins with the names and passwords of a listener's users (SCRAM or PLAIN)."""

import asyncio
from collections.abc import Hashable
from functools import partial
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config.listener_security import listener_sasl
from ottla_broker.console.login import SessionAccess, read_form, redirect, require_private_connection
from ottla_broker.console.sessions import Login
from ottla_broker.requests.user_passwords import UserPasswords
from ottla_broker.security.principal import Principal
from ottla_broker.security.scram import MECHANISMS

MAX_NAME: Final = 1024
"""Characters of a name; a longer one is wrong. MAX_PASSWORD: the same of a password."""
MAX_PASSWORD: Final = 1024
MAX_CHECKS: Final = 2
"""Passwords that are checked at once: each takes a thread for milliseconds."""
WRONG: Final = "The name or the password is wrong."


class PasswordLogin:
    """`listener`: the listener whose users log in."""

    def __init__(self, broker: Broker, listener: str, access: SessionAccess) -> None:
        self._broker = broker
        self._listener = listener
        self._access = access
        self._passwords = UserPasswords(broker)
        self._checks = asyncio.Semaphore(MAX_CHECKS)

    async def log_in(self, http: web.Request) -> web.Response:
        """Redirects to the overview, with the cookie of a new session. Raises PageError: 401 after
        the delay of failed logins.
        """
        require_private_connection(http)
        form = await read_form(http)
        name, password = form.get("name", ""), form.get("password", "")
        if not await self._is_password_valid(name, password):
            await self._access.refuse_login(http, name, WRONG)
        credentials = partial(find_credentials, self._broker, self._listener, name)
        login = Login(Principal("User", name), find_credentials=credentials)
        return self._access.open_session(http, login, redirect("/"))

    async def _is_password_valid(self, name: str, password: str) -> bool:
        if not (0 < len(name) <= MAX_NAME and 0 < len(password) <= MAX_PASSWORD):
            return False
        async with self._checks:
            return await self._passwords.is_right(listener_sasl(self._broker.config, self._listener), name, password)


def find_credentials(broker: Broker, listener: str, name: str) -> Hashable:
    """The present credentials of a listener's user: a session ends when they change."""
    sasl = listener_sasl(broker.config, listener)
    scram = broker.image.scram_credentials
    stored = tuple(scram.get((name, MECHANISMS[one])) for one in sasl.mechanisms if one in MECHANISMS)
    return (sasl.plain_users.get(name), *stored)
