"""Logins by an OpenID Connect provider: the authorization code flow with PKCE (RFC 7636).

The principal is that of an OAUTHBEARER client: `sasl.oauthbearer.sub.claim.name` of the id token.
It is the provider's site that sends the browser back, so that request has no cookies that are
SameSite=Strict. The cookie of a login in progress is therefore Lax, and the page after the login
loads the overview itself, with the session's cookie.
"""

import hashlib
import hmac
import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn
from urllib.parse import urlencode

from aiohttp import web
from msgspec.structs import replace

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.console.login import SessionAccess, redirect, require_private_connection
from ottla_broker.console.login_methods import OidcSettings
from ottla_broker.console.oidc_provider import LoginRefused, OidcProvider, ProviderError, describe_refusal
from ottla_broker.console.sessions import TOKEN_BYTES, Login
from ottla_broker.logins import make_key_set
from ottla_broker.security.oauth_token import IdToken, InvalidToken, TokenRules, read_key_id, validate_id_token
from ottla_broker.security.principal import Principal

logger = logging.getLogger(__name__)

START_PATH: Final = "/login/oidc/start"
REDIRECT_PATH: Final = "/login/oidc"
ATTEMPT_LIFETIME_S: Final = 600
"""Time that a user may take at the provider to log in."""
NOT_STARTED: Final = (
    f"This login was not started in this browser, or more than {ATTEMPT_LIFETIME_S // 60} minutes ago. Log in again."
)


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """Values that tie a response of the provider to the browser that has sent the request. They are
    derived from the browser's cookie and a secret of this broker, so that the broker stores nothing
    about logins in progress.
    """

    cookie: str
    state: str
    nonce: str
    verifier: str

    @property
    def challenge(self) -> str:
        return _base64url(hashlib.sha256(self.verifier.encode()).digest())


class LoginAttempts:
    """Starts login attempts and recognises them again. `now_s`: seconds by any clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._secret = secrets.token_bytes(TOKEN_BYTES)

    def start(self) -> LoginAttempt:
        return self._derive(f"{int(self._now_s()) + ATTEMPT_LIFETIME_S}.{secrets.token_urlsafe(TOKEN_BYTES)}")

    def find(self, cookie: str, state: str) -> LoginAttempt | None:
        """None if no attempt with this cookie and state was started, or it has expired."""
        attempt, end = self._derive(cookie), cookie.partition(".")[0]
        # A cookie with the right state is this broker's own, so its end is a number.
        is_right = hmac.compare_digest(attempt.state.encode(), state.encode())
        return attempt if is_right and self._now_s() < int(end) else None

    def _derive(self, cookie: str) -> LoginAttempt:
        state, nonce, verifier = (
            _base64url(hmac.digest(self._secret, f"{purpose}\0{cookie}".encode(), "sha256"))
            for purpose in ("state", "nonce", "verifier")
        )
        return LoginAttempt(cookie, state, nonce, verifier)


class OidcLogin:
    """`show_logged_in`: makes the page that loads the overview."""

    def __init__(
        self,
        broker: Broker,
        settings: OidcSettings,
        access: SessionAccess,
        show_logged_in: Callable[[web.Request], web.Response],
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._access = access
        self._show_logged_in = show_logged_in
        self._provider = OidcProvider(settings, broker.runtime)
        self._keys = make_key_set(settings.issuer, self._provider.fetch_keys, settings.oauth)
        self._rules: TokenRules = replace(settings.oauth.rules, audiences=(settings.client_id,), issuer=settings.issuer)
        self._attempts = LoginAttempts(lambda: broker.runtime.now_ms() / 1000)
        self._cookie = f"ottla-console-login-{broker.node_id}"
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Begins to fetch the provider's keys regularly, until `close`."""
        self._tasks.start(self._keys.run())

    async def close(self) -> None:
        await self._tasks.cancel()

    async def send_to_provider(self, http: web.Request) -> web.Response:
        """Starts an attempt and redirects to the provider. Raises PageError."""
        require_private_connection(http)
        try:
            metadata = await self._provider.find_metadata()
        except ProviderError as reason:
            await self._fail_by_provider(http, reason)
        attempt = self._attempts.start()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri(http),
            "scope": self._settings.scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        url = metadata.authorization_endpoint
        response = redirect(f"{url}{'&' if '?' in url else '?'}{urlencode(query)}")
        response.set_cookie(
            self._cookie,
            attempt.cookie,
            max_age=ATTEMPT_LIFETIME_S,
            httponly=True,
            samesite="Lax",
            secure=http.secure,
            path=REDIRECT_PATH,
        )
        return response

    async def finish(self, http: web.Request) -> web.Response:
        """Ends the login with the provider's response, which the browser brings as the query.
        Raises PageError."""
        require_private_connection(http)
        query = http.query
        attempt = self._attempts.find(http.cookies.get(self._cookie, ""), query.get("state", ""))
        if attempt is None:
            await self._refuse(http, NOT_STARTED, "its state is unknown")
        if error := query.get("error", ""):
            reason = describe_refusal(error, query.get("error_description", ""))
            await self._refuse(http, f"The login service refuses the login: {reason}.", reason)
        if query.get("iss", self._settings.issuer) != self._settings.issuer:  # RFC 9207
            await self._refuse(http, NOT_STARTED, "it is the response of another issuer")
        token = await self._fetch_id_token(http, query.get("code", ""), attempt)
        logger.info("%s logged in by %s", token.subject, self._settings.issuer)
        lifetime_s = (token.expires_ms - self._broker.runtime.now_ms()) / 1000
        login = Login(Principal("User", token.subject), lifetime_s)
        response = self._access.open_session(http, login, self._show_logged_in(http))
        response.del_cookie(self._cookie, path=REDIRECT_PATH, httponly=True, samesite="Lax", secure=http.secure)
        return response

    async def _fetch_id_token(self, http: web.Request, code: str, attempt: LoginAttempt) -> IdToken:
        """Exchanges the code for an id token and validates it. Raises PageError."""
        try:
            text = await self._provider.redeem_code(code, attempt.verifier, self._redirect_uri(http))
            if key_id := read_key_id(text):
                await self._keys.wait_for_key(key_id)
            return validate_id_token(text, self._keys.keys, self._rules, attempt.nonce)
        except ProviderError as reason:
            await self._fail_by_provider(http, reason)
        except LoginRefused as reason:
            await self._refuse(http, f"The login service refuses the login: {reason}.", str(reason))
        except InvalidToken as reason:
            message = "The login service has sent a token that is not valid here; the broker's log says why."
            await self._refuse(http, message, f"rejecting an id token: {reason}")

    def _redirect_uri(self, http: web.Request) -> str:
        return self._settings.redirect_uri or f"{http.scheme}://{http.host}{REDIRECT_PATH}"

    async def _fail_by_provider(self, http: web.Request, reason: ProviderError) -> NoReturn:
        """Logs the provider's error, and raises PageError."""
        logger.warning("login from %s by %s failed: %s", http.remote, self._settings.issuer, reason)
        message = f"The login service does not respond as expected: {reason}."
        await self._access.refuse_login(http, "", message, 502)

    async def _refuse(self, http: web.Request, message: str, reason: str) -> NoReturn:
        """Logs the reason, and raises PageError with the message."""
        logger.info("login from %s by %s failed: %s", http.remote, self._settings.issuer, reason)
        await self._access.refuse_login(http, "", message)


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
