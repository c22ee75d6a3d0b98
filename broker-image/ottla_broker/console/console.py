"""Routes of the console, and the steps of every request: login, page, errors as pages.

Pages contain no inline script or style, and browsers load neither from other addresses. So a
record's value that is in a page unescaped would not be run.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.console.access import ConsoleUser
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.login import OpenAccess, SessionAccess, redirect
from ottla_broker.console.login_methods import find_login_methods
from ottla_broker.console.login_routes import LoginRoutes
from ottla_broker.console.overview import Overview
from ottla_broker.console.page_routes import make_page_routes
from ottla_broker.console.rendering import Renderer
from ottla_broker.console.requests import PageError, PageHandler, PageRequest, with_security_headers
from ottla_broker.console.static_files import StaticFiles
from ottla_broker.log_format import log_fields
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.requests.context import AUTHORIZATION_ERRORS
from ottla_broker.security.principal import ANONYMOUS
from ottla_broker.server import Server
from ottla_broker.wire.errors import KafkaError, describe_os_error

HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DENIED: Final = frozenset(AUTHORIZATION_ERRORS.values())


class Console:
    """The console of a broker. `registry`: None if the broker serves none. Raises SettingError if
    users of the console could not log in.
    """

    def __init__(self, broker: Broker, server: Server, registry: LazyRegistry | None = None) -> None:
        methods = find_login_methods(broker.config)
        self._broker = broker
        self._access: OpenAccess | SessionAccess = OpenAccess(broker)
        self._login: LoginRoutes | None = None
        if methods is not None:
            self._access = SessionAccess(broker)
            self._login = LoginRoutes(broker, methods, self._access, self._anonymous_page)
        self._static = StaticFiles()
        self._renderer = Renderer(
            self._static.url, broker.node_id, lambda: broker.cluster_id, has_login=self._login is not None
        )
        self._requests = ClusterRequests(broker)
        self._tasks = BackgroundTasks(broker.unrecoverable_errors.append)
        self._overview = Overview(broker, server, self._requests)
        self._pages = make_page_routes(broker, server.dispatcher, registry, self._requests, self._overview, self._tasks)

    @property
    def wants_certificates(self) -> bool:
        """True if users may log in with certificates, which browsers present in TLS handshakes."""
        return self._login is not None and self._login.wants_certificates

    def routes(self) -> list[web.RouteDef]:
        served = [web.route(one.method, one.path, self._serve(one.handler)) for one in self._pages]
        if self._login is not None:
            served += self._login.routes()
        return [*served, web.get("/static/{digest}/{name}", self._static.serve)]

    def start(self) -> None:
        """Called on the running loop."""
        self._overview.start()
        if self._login is not None:
            self._login.start()

    async def close(self) -> None:
        if self._login is not None:
            await self._login.close()
        await self._overview.close()
        await self._tasks.cancel()
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

    def _anonymous_page(self, http: web.Request) -> PageRequest:
        return PageRequest(http, ConsoleUser(self._broker, ANONYMOUS, http.remote or ""), self._renderer)


def ask_for_login(http: web.Request) -> web.Response:
    """Redirects to the page of the login; htmx follows the header HX-Redirect, not a status."""
    if http.headers.get("HX-Request") == "true":
        return web.Response(status=401, headers={"HX-Redirect": "/login"})
    return redirect("/login")


def show_error(page: PageRequest, status: int, message: str) -> web.Response:
    template = "error_part.html" if page.wants_fragment else "error.html"
    response = page.render(template, message=message)
    response.set_status(status)
    return response
