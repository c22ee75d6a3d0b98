"""The pages and forms by which users log in and out, for each login method of the settings."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.certificate_login import CertificateLogin
from ottla_broker.console.login import SessionAccess
from ottla_broker.console.login_methods import LoginMethods
from ottla_broker.console.oidc_login import REDIRECT_PATH, START_PATH, OidcLogin
from ottla_broker.console.password_login import PasswordLogin
from ottla_broker.console.requests import PageError, PageRequest, with_security_headers

LoginHandler = Callable[[web.Request], Awaitable[web.Response]]


class LoginRoutes:
    """`make_page`: makes a page request of a user who has not logged in."""

    def __init__(
        self,
        broker: Broker,
        methods: LoginMethods,
        access: SessionAccess,
        make_page: Callable[[web.Request], PageRequest],
    ) -> None:
        self._access = access
        self._make_page = make_page
        passwords, certificates, oidc = methods.password_listener, methods.certificate_listener, methods.oidc
        self._passwords = None if passwords is None else PasswordLogin(broker, passwords, access)
        self._certificates = None if certificates is None else CertificateLogin(broker, certificates, access)
        self._provider_name = "" if oidc is None else urlsplit(oidc.issuer).netloc
        self._oidc = None if oidc is None else OidcLogin(broker, oidc, access, self._show_logged_in)

    @property
    def wants_certificates(self) -> bool:
        return self._certificates is not None

    def routes(self) -> list[web.RouteDef]:
        served = [web.get("/login", self._show), web.post("/logout", self._with_errors(self._access.log_out))]
        if self._passwords is not None:
            served.append(web.post("/login", self._with_errors(self._passwords.log_in)))
        if self._certificates is not None:
            served.append(web.post("/login/certificate", self._with_errors(self._certificates.log_in)))
        if self._oidc is not None:
            served.append(web.get(START_PATH, self._with_errors(self._oidc.send_to_provider)))
            served.append(web.get(REDIRECT_PATH, self._with_errors(self._oidc.finish)))
        return served

    def start(self) -> None:
        if self._oidc is not None:
            self._oidc.start()

    async def close(self) -> None:
        if self._oidc is not None:
            await self._oidc.close()

    def _show_logged_in(self, http: web.Request) -> web.Response:
        return self._make_page(http).render("logged_in.html")

    async def _show(self, http: web.Request) -> web.Response:
        return with_security_headers(self._render(http, ""))

    def _with_errors(self, handler: LoginHandler) -> LoginHandler:
        """The handler, which shows a PageError on the page of the login."""

        async def answer(http: web.Request) -> web.Response:
            try:
                response = await handler(http)
            except PageError as reason:
                response = self._render(http, reason.message)
                response.set_status(reason.status)
            return with_security_headers(response)

        return answer

    def _render(self, http: web.Request, message: str) -> web.Response:
        return self._make_page(http).render(
            "login.html",
            message=message,
            has_passwords=self._passwords is not None,
            has_certificates=self._certificates is not None,
            certificate_user=None if self._certificates is None else self._certificates.find_principal(http),
            provider=self._provider_name,
        )
