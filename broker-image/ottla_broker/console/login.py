"""Logging in and out.

Browsers send the cookie of a session with requests of the console's own pages only
(SameSite=Strict), and no script reads it (HttpOnly). A form is accepted from the same origin
only, and every form of a page needs the session's token besides. On an open cluster it is a token
of the console, which other sites cannot read either.
"""

import asyncio
import hmac
import secrets
from functools import partial
from typing import Final, NoReturn
from urllib.parse import urlsplit

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS, CONSOLE_WRITE
from ottla_broker.console.access import AllowedHosts, ConsoleUser, is_private_connection, make_context
from ottla_broker.console.requests import PageError
from ottla_broker.console.sessions import TOKEN_BYTES, Login, Sessions
from ottla_broker.requests.login import MAX_AUDITED_NAME
from ottla_broker.security.audit import AuditedResource
from ottla_broker.security.principal import ANONYMOUS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

NOT_PRIVATE: Final = (
    "The console takes logins over TLS or from this machine only, because passwords and sessions would cross the "
    "network in the clear: set http.security.listener, or use kubectl port-forward, an SSH tunnel, or a proxy on this "
    "machine that terminates TLS."
)


class OpenAccess:
    """Access to a cluster without authentication: everyone is User:ANONYMOUS."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._hosts = AllowedHosts(broker)
        self._form_token = secrets.token_urlsafe(TOKEN_BYTES)
        self._may_write = broker.config(CONSOLE_WRITE) == "everyone"

    def find_user(self, http: web.Request) -> ConsoleUser:
        """Raises PageError for a request whose host is not one of AllowedHosts."""
        if (http.url.host or "") not in self._hosts:
            raise PageError(421, f"This console does not answer under the name {http.url.host!r}.")
        return ConsoleUser(self._broker, ANONYMOUS, http.remote or "", self._form_token, self._may_write)


class SessionAccess:
    """Access to a cluster whose users log in: they need a session."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._may_write = broker.config(CONSOLE_WRITE) != "nobody"
        self._sessions = Sessions(asyncio.get_running_loop().time)
        # Cookies do not distinguish ports: brokers on one machine need names of their own.
        self._cookie = f"ottla-console-{broker.node_id}"

    def find_user(self, http: web.Request) -> ConsoleUser | None:
        """The user of the session that the request's cookie names; None without one. Raises
        PageError on a connection that is not private.
        """
        require_private_connection(http)
        token = http.cookies.get(self._cookie, "")
        session = self._sessions.find(token)
        if session is None or not session.login.is_presented(http):
            return None
        is_logged_in = partial(self._sessions.is_open, token)
        return ConsoleUser(
            self._broker, session.login.principal, http.remote or "", session.form_token, self._may_write, is_logged_in
        )

    def open_session(self, http: web.Request, login: Login, response: web.Response) -> web.Response:
        """Sets the cookie of a new session on the response, and closes the browser's present
        one.
        """
        self._sessions.close(http.cookies.get(self._cookie, ""))
        token = self._sessions.open(login)
        response.set_cookie(self._cookie, token, httponly=True, samesite="Strict", secure=http.secure, path="/")
        return response

    async def refuse_login(self, http: web.Request, name: str, message: str, status: int = 401) -> NoReturn:
        """Records a failed login in the audit log, and raises PageError after the delay of failed
        logins. `name`: the user's name; empty if it is unknown.
        """
        context = make_context(self._broker, ANONYMOUS, http.remote or "", ApiKey.SASL_AUTHENTICATE)
        user = AuditedResource("USER", name[:MAX_AUDITED_NAME])
        context.record_audit("LOGIN", user, ErrorCode.sasl_authentication_failed.name.upper())
        await asyncio.sleep(self._broker.config(CONNECTION_FAILED_AUTHENTICATION_DELAY_MS) / 1000)
        raise PageError(status, message)

    async def log_out(self, http: web.Request) -> web.Response:
        """Closes the session and redirects to the page of the login. Raises PageError."""
        token = http.cookies.get(self._cookie, "")
        session = self._sessions.find(token)
        await read_page_form(http, "" if session is None else session.form_token)
        self._sessions.close(token)
        response = redirect("/login")
        response.del_cookie(self._cookie, path="/", httponly=True, samesite="Strict", secure=http.secure)
        return response


def require_private_connection(http: web.Request) -> None:
    """Raises PageError where a login would cross the network in the clear."""
    if not is_private_connection(http):
        raise PageError(403, NOT_PRIVATE)


async def read_page_form(http: web.Request, form_token: str) -> dict[str, str]:
    """The fields of a page's form. `form_token`: that of the user; empty: the form needs none.
    Raises PageError as `read_form` does, and for a form with another token.
    """
    form = await read_form(http)
    if form_token and not hmac.compare_digest(form.get("token", "").encode(), form_token.encode()):
        raise PageError(403, "This form is not of your session; load the page again.")
    return form


async def read_form(http: web.Request) -> dict[str, str]:
    """The fields of a form. Raises PageError for a form of another site, and for one that is not in
    UTF-8 or is too large.
    """
    if not is_same_origin(http):
        raise PageError(403, "This form was sent by another site.")
    try:
        form = await http.post()
    except UnicodeDecodeError:
        raise PageError(400, "This form is not text in UTF-8.") from None
    except web.HTTPRequestEntityTooLarge as reason:
        raise PageError(413, f"This form is too large: {reason.text}.") from None
    return {name: value for name, value in form.items() if isinstance(value, str)}


def is_same_origin(http: web.Request) -> bool:
    """True for a form that the browser sends from a page of this console."""
    # Every browser sends `Origin` with a form. A proxy may terminate TLS: schemes are not compared.
    origin = http.headers.get("Origin", "")
    return http.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin" and urlsplit(origin).netloc == http.host


def redirect(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})
