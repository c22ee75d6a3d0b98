"""SASL on one connection of a listener, the server's side: which requests the client may send, and
as which principal.

- Until the client has authenticated, only ApiVersions, SaslHandshake and SaslAuthenticate are
  served.
- A handshake of version 0 is followed by bare tokens, as old clients send them; of version 1 by
  SaslAuthenticate.
- A session expires with `connections.max.reauth.ms` and with its token (KIP-368). Before it does,
  the client authenticates again: as the same principal, by the same mechanism, at most once a
  second.
- A failed exchange ends the connection, after `connection.failed.authentication.delay.ms`. Unknown
  users fail as late as known ones with a wrong password, with the same message.
"""

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla_broker.security.delegation_tokens import FindToken, TokenLogin
from ottla_broker.security.oauthbearer import OauthExchange, TokenValidator
from ottla_broker.security.principal import Principal
from ottla_broker.security.scram import (
    MECHANISMS,
    OTHER_AUTHORIZATION_ID,
    CredentialShape,
    SaslAuthenticationError,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    decoy_credential,
)
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.client_security import OAUTHBEARER, PLAIN
from ottla_broker.wire.digests import are_equal
from ottla_broker.wire.errors import ErrorCode, KafkaError

ALLOWED_BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
MIN_REAUTHENTICATION_INTERVAL_S: Final = 1.0
LOGIN_TIMEOUT_S: Final = 30.0
"""Time in which a new connection must log in. Then it is closed."""
NONCE_BYTES: Final = 24
INVALID_USER: Final = "Authentication failed: Invalid username or password"
_SECRET: Final = os.urandom(32)
"""Random secret of this process, from which the salts of users that do not exist are derived."""


class ScramLogin(NamedTuple):
    """The credential of a login by SCRAM: a user's, or a delegation token's, whose id is then the
    `name`. It can be removed while the session lasts.
    """

    name: str
    mechanism: ScramMechanism
    is_token: bool


FindShapes = Callable[[ScramMechanism], Sequence[CredentialShape]]
"""Returns the shapes of all users' credentials of a mechanism."""
FindCredential = Callable[[str, ScramMechanism], ScramCredential | None]


@dataclass(frozen=True, slots=True)
class ListenerSasl:
    """SASL of a listener. `plain_users`: passwords by name. `max_session_s`: by mechanism; 0:
    without end. `login_timeout_s`: time in which a client must log in; 0: no limit. `is_optional`:
    clients that do not log in are served as User:ANONYMOUS.
    """

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_session_s: Mapping[str, float] = field(default_factory=dict)
    failure_delay_s: float = 0.1
    max_receive_bytes: int = 524_288
    login_timeout_s: float = LOGIN_TIMEOUT_S
    is_optional: bool = False


class SaslSession:
    """`principal`: None until the client has authenticated. `login`: by SCRAM, else None.
    `expires_s`: by the loop's clock; None: never. `token_validator`: None without OAUTHBEARER.
    `find_token`: None without delegation tokens. `has_failed`: the connection closes after the
    response in progress.
    """

    def __init__(
        self,
        sasl: ListenerSasl,
        find_credential: FindCredential,
        now_s: Callable[[], float],
        token_validator: TokenValidator | None = None,
        find_token: FindToken | None = None,
        find_shapes: FindShapes | None = None,
    ) -> None:
        self.sasl = sasl
        self._find_credential = find_credential
        self._now_s = now_s
        self._token_validator = token_validator
        self._find_token = find_token or find_no_token
        self._find_shapes = find_shapes or find_no_shapes
        self._mechanism = ""
        self._exchange: PlainExchange | ScramExchange | OauthExchange | None = None
        self._authenticated_s = 0.0
        self.expects_bare_tokens = False
        self.principal: Principal | None = None
        self.login: ScramLogin | None = None
        self.expires_s: float | None = None
        self.has_failed = False

    def may_send(self, api_key: int) -> bool:
        if self.has_failed:
            return False
        if self.principal is None:
            return self.sasl.is_optional or api_key in ALLOWED_BEFORE_LOGIN
        is_valid = self.expires_s is None or self._now_s() < self.expires_s
        return is_valid or api_key in ALLOWED_BEFORE_LOGIN

    def begin(self, mechanism: str, *, bare_tokens: bool) -> None:
        """Handles a SaslHandshake. Raises UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE,
        SASL_AUTHENTICATION_FAILED.
        """
        if self._exchange is not None or not self._may_authenticate():
            raise self._fail(ErrorCode.illegal_sasl_state, "SaslHandshake is not expected now")
        is_enabled = mechanism in self.sasl.mechanisms and (mechanism != OAUTHBEARER or self._token_validator)
        if not is_enabled:
            raise self._fail(ErrorCode.unsupported_sasl_mechanism, f"{mechanism} is not enabled on this listener")
        if self._mechanism not in ("", mechanism):
            raise self._fail(ErrorCode.sasl_authentication_failed, "the mechanism cannot change in a session")
        self._mechanism = mechanism
        self.expects_bare_tokens = bare_tokens
        if mechanism == PLAIN:
            self._exchange = PlainExchange(self.sasl.plain_users)
        elif mechanism == OAUTHBEARER and self._token_validator is not None:
            self._exchange = OauthExchange(self._token_validator)
        else:
            self._exchange = ScramExchange(
                MECHANISMS[mechanism], self._find_credential, self._find_token, self._find_shapes
            )

    async def prepare(self, token: bytes) -> None:
        """Waits for what `respond` needs, such as the keys of OAuth tokens."""
        if isinstance(self._exchange, OauthExchange):
            await self._exchange.prepare(token)

    def respond(self, token: bytes) -> bytes:
        """The answer to a client's token. Raises ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED."""
        if self._exchange is None:
            raise self._fail(ErrorCode.illegal_sasl_state, "SaslAuthenticate is not expected before SaslHandshake")
        try:
            response = self._exchange.respond(token)
            if (principal := self._exchange.principal) is not None:
                self.login = self._exchange.login if isinstance(self._exchange, ScramExchange) else None
                self._complete(principal, self._exchange.lifetime_s)
        except SaslAuthenticationError as reason:
            raise self._fail(ErrorCode.sasl_authentication_failed, str(reason)) from None
        return response

    @property
    def claimed_user(self) -> str:
        """The user name of the login in progress; empty until the client has sent it, after the
        login, and with OAuth.
        """
        return "" if self._exchange is None else self._exchange.username

    @property
    def lifetime_ms(self) -> int:
        """Milliseconds until the session expires; 0: never, not authenticated yet, or expired
        already.
        """
        return 0 if self.expires_s is None else max(0, round((self.expires_s - self._now_s()) * 1000))

    def _may_authenticate(self) -> bool:
        if self.principal is None:
            return True
        return self.expires_s is not None and self._now_s() - self._authenticated_s >= MIN_REAUTHENTICATION_INTERVAL_S

    def _complete(self, principal: Principal, token_lifetime_s: float | None) -> None:
        if self.principal not in (None, principal):
            raise SaslAuthenticationError("Cannot change principals during re-authentication")
        self._exchange = None
        self.expects_bare_tokens = False
        self.principal = principal
        self._authenticated_s = self._now_s()
        max_s = self.sasl.max_session_s.get(self._mechanism, 0.0)
        limits_s = [limit for limit in (token_lifetime_s, max_s or None) if limit is not None]
        # A token that expires within the clock skew gives a session that is over at once
        # (KAFKA-13848).
        self.expires_s = self._authenticated_s + max(0.0, min(limits_s)) if limits_s else None

    def _fail(self, code: ErrorCode, message: str) -> KafkaError:
        self.has_failed = True
        return KafkaError(code, message)


class PlainExchange:
    """RFC 4616: one token with authorization id, name and password. `principal`: set once the
    password was right.
    """

    lifetime_s = None

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.username = ""
        self.principal: Principal | None = None

    def respond(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3 or not (parts[1] and parts[2]):
            raise SaslAuthenticationError("Authentication failed: Invalid SASL/PLAIN response: expected 3 tokens")
        authorization_id, name, password = parts
        try:
            self.username = username = name.decode()
        except UnicodeDecodeError:
            raise SaslAuthenticationError(INVALID_USER) from None
        expected, decoy = self._users.get(username), os.urandom(32).hex()  # made for known users too: it takes time
        is_right = are_equal(password, (decoy if expected is None else expected).encode())
        if expected is None or not is_right:
            raise SaslAuthenticationError(INVALID_USER)
        if authorization_id not in (b"", name):
            raise SaslAuthenticationError(OTHER_AUTHORIZATION_ID)
        self.principal = Principal("User", username)
        return b""


class ScramExchange:
    """`principal`: set once the client has proved that it knows the password: of a user, or of the
    owner of a delegation token.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: FindCredential,
        find_token: FindToken,
        find_shapes: FindShapes,
    ) -> None:
        self._mechanism = mechanism
        self._find_shapes = find_shapes
        self._find_credential = find_credential
        self._find_token = find_token
        self._server = ScramServer(mechanism, base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode())
        self._credential: ScramCredential | None = None
        self._token: TokenLogin | None = None
        self.principal: Principal | None = None
        self.lifetime_s: float | None = None

    def respond(self, token: bytes) -> bytes:
        if self._credential is None:
            name = self._server.read_first(token)
            # Made for known users too: it takes time, which would show clients which users exist.
            decoy = decoy_credential(self._mechanism, name, _SECRET, self._find_shapes(self._mechanism))
            self._credential = self._find(name) or decoy
            return self._server.first_response(self._credential)
        response = self._server.final_response(token, self._credential)
        if self._token is None:
            self.principal = Principal("User", self._server.username)
        else:
            self.principal, self.lifetime_s = self._token.owner, self._token.lifetime_s
        return response

    @property
    def username(self) -> str:
        return self._server.username

    @property
    def login(self) -> ScramLogin:
        return ScramLogin(self._server.username, self._mechanism, self._server.is_token)

    def _find(self, name: str) -> ScramCredential | None:
        if not self._server.is_token:
            return self._find_credential(name, self._mechanism)
        self._token = self._find_token(name, self._mechanism)
        return None if self._token is None else self._token.credential


def find_no_shapes(mechanism: ScramMechanism) -> tuple[CredentialShape, ...]:
    return ()


def find_no_token(token_id: str, mechanism: ScramMechanism) -> None:
    """Finds no token, where delegation tokens are disabled."""
