"""Routes of the console, and the checks of every request.

Pages contain no inline script or style, and browsers load neither from other addresses. So a
record's value that is in a page unescaped would not be run.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.access import ConsoleUser, find_login_listener
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.login import OpenAccess, PasswordAccess, redirect
from ottla_broker.console.overview import Overview
from ottla_broker.console.page_routes import make_page_routes
from ottla_broker.console.rendering import Renderer
from ottla_broker.console.requests import SECURITY_HEADERS, PageError, PageHandler, PageRequest
from ottla_broker.console.static_files import StaticFiles
from ottla_broker.log_format import log_fields
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.requests.context import AUTHORIZATION_ERRORS
from ottla_broker.security.principal import ANONYMOUS
from ottla_broker.server import Server
from ottla_broker.wire.errors import KafkaError, describe_os_error

logger = logging.getLogger(__name__)

HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FormHandler = Callable[[web.Request], Awaitable[web.Response]]
R = TypeVar("R", bound=web.StreamResponse)

DENIED: Final = frozenset(AUTHORIZATION_ERRORS.values())


class Console:
    """One per broker. `registry`: None if the broker serves none. Raises SettingError where users
    of the console cannot log in.
    """

    def __init__(self, broker: Broker, server: Server, registry: LazyRegistry | None = None) -> None:
        listener = find_login_listener(broker.config)
        self._broker = broker
        self._login = None if listener is None else PasswordAccess(broker, listener)
        self._access: OpenAccess | PasswordAccess = self._login or OpenAccess(broker)
        self._static = StaticFiles()
        self._renderer = Renderer(
            self._static.url, broker.node_id, lambda: broker.cluster_id, has_login=self._login is not None
        )
        self._requests = ClusterRequests(broker)
        self._overview = Overview(broker, server, self._requests)
        self._pages = make_page_routes(broker, server.dispatcher, registry, self._requests, self._overview)

    def routes(self) -> list[web.RouteDef]:
        served = [web.route(one.method, one.path, self._serve(one.handler)) for one in self._pages]
        if self._login is not None:
            served.append(web.get("/login", self._show_login))
            served.append(web.post("/login", self._answer_form(self._login.log_in)))
            served.append(web.post("/logout", self._answer_form(self._login.log_out)))
        return [*served, web.get("/static/{digest}/{name}", self._static.serve)]

    def start(self) -> None:
        """Called on the running loop."""
        self._overview.start()

    async def close(self) -> None:
        await self._overview.close()
        await self._requests.close()

    def _serve(self, handler: PageHandler) -> HttpHandler:
        async def serve(http: web.Request) -> web.StreamResponse:
            try:
                user = self._access.find_user(http)
            except PageError as reason:
                return with_security_headers(show_error(self._anonymous_page(http), reason.status, reason.message))
            if user is None:
                return with_security_headers(ask_for_login(http))
            with log_fields(request=f"{http.method} {http.path}", principal=str(user.principal), host=user.host):
                response = await self._answer(handler, http, user)
            return with_security_headers(response)

        return serve

    async def _answer(self, handler: PageHandler, http: web.Request, user: ConsoleUser) -> web.StreamResponse:
        page = PageRequest(http, user, self._renderer)
        try:
            return await handler(page)
        except PageError as reason:
            return show_error(page, reason.status, reason.message)
        except KafkaError as error:
            return show_error(page, 403 if error.code in DENIED else 502, error.message or error.code.name)
        except OSError as error:
            why = describe_os_error(error) or "no response in time"
            return show_error(page, 502, f"A broker does not respond: {why}.")

    async def _show_login(self, http: web.Request) -> web.Response:
        return with_security_headers(self._anonymous_page(http).render("login.html", message=""))

    def _answer_form(self, handler: FormHandler) -> HttpHandler:
        async def answer(http: web.Request) -> web.StreamResponse:
            try:
                response = await handler(http)
            except PageError as reason:
                response = self._anonymous_page(http).render("login.html", message=reason.message)
                response.set_status(reason.status)
            return with_security_headers(response)

        return answer

    def _anonymous_page(self, http: web.Request) -> PageRequest:
        return PageRequest(http, ConsoleUser(self._broker, ANONYMOUS, http.remote or ""), self._renderer)


def ask_for_login(http: web.Request) -> web.Response:
    if http.headers.get("HX-Request") == "true":
        return web.Response(status=401, headers={"HX-Redirect": "/login"})
    return redirect("/login")


def with_security_headers(response: R) -> R:
    if not response.prepared:
        response.headers.update(SECURITY_HEADERS)
    return response


def show_error(page: PageRequest, status: int, message: str) -> web.Response:
    template = "error_part.html" if page.wants_fragment else "error.html"
    response = page.render(template, message=message)
    response.set_status(status)
    return response
