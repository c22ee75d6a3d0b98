"""TLS and SASL of each listener, and of the connections between brokers, derived from several
settings.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec

from ottla_broker.config import security_settings as rows
from ottla_broker.config.addresses import Listener
from ottla_broker.config.server_properties import LISTENER_PREFIX
from ottla_broker.config.setting import Setting, SettingError
from ottla_broker.security.jwks import JwksEndpoint
from ottla_broker.security.oauth_token import TokenRules
from ottla_broker.security.sasl_session import LOGIN_TIMEOUT_S, ListenerSasl
from ottla_broker.wire.client_security import OAUTHBEARER, PLAIN, SASL_PROTOCOLS, ClientSecurity
from ottla_broker.wire.listener_tls import ListenerTls, TlsConfigError

T = TypeVar("T")


class ListenerSettings(Protocol):
    """The part of Config that these functions need."""

    listeners: tuple[Listener, ...]

    def __call__(self, setting: Setting[T]) -> T: ...

    def listener_value(self, listener: str, setting: Setting[T], mechanism: str = "") -> T: ...

    def security_protocol(self, listener: str) -> str: ...

    @property
    def inter_broker_listener(self) -> str: ...


def listener_tls(config: ListenerSettings, listener: str) -> ListenerTls:
    """TLS of a listener: its own `listener.name.NAME.ssl.…` settings over those of all
    listeners.
    """

    def of(setting: Setting[T]) -> T:
        return config.listener_value(listener, setting)

    return ListenerTls(
        of(rows.SSL_KEYSTORE_LOCATION) or "",
        of(rows.SSL_KEYSTORE_CERTIFICATE_CHAIN) or "",
        of(rows.SSL_KEYSTORE_KEY) or "",
        of(rows.SSL_KEY_PASSWORD) or "",
        of(rows.SSL_TRUSTSTORE_LOCATION) or "",
        of(rows.SSL_TRUSTSTORE_CERTIFICATES) or "",
        of(rows.SSL_CLIENT_AUTH),
        of(rows.SSL_ENABLED_PROTOCOLS),
    )


def listener_sasl(config: ListenerSettings, listener: str) -> ListenerSasl:
    """SASL of a listener: its own settings, those of its mechanisms first, over those of all
    listeners.
    """
    is_inter_broker = listener == config.inter_broker_listener
    mechanisms = config.listener_value(listener, rows.SASL_ENABLED_MECHANISMS)
    plain = config.listener_value(listener, rows.SASL_JAAS_CONFIG, PLAIN)
    reauth_ms = [config.listener_value(listener, rows.CONNECTIONS_MAX_REAUTH_MS, mechanism) for mechanism in mechanisms]
    return ListenerSasl(
        mechanisms,
        {} if plain is None else plain.users,
        dict(zip(mechanisms, [max(0, ms) / 1000 for ms in reauth_ms], strict=True)),
        config(rows.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS) / 1000,
        config.listener_value(listener, rows.SASL_SERVER_MAX_RECEIVE_SIZE),
        # Probes of other brokers do not log in.
        0.0 if is_inter_broker else LOGIN_TIMEOUT_S,
        is_inter_broker and config(rows.SASL_INTER_BROKER_OPTIONAL),
    )


class OauthSettings(msgspec.Struct, frozen=True):
    """Settings by which a listener validates OAuth tokens."""

    endpoint: JwksEndpoint
    rules: TokenRules
    refresh_s: float
    retry_backoff_s: float
    retry_backoff_max_s: float


def listener_oauth(config: ListenerSettings, listener: str) -> OauthSettings | None:
    """How a listener validates OAuth tokens; None if it has no JWKS endpoint."""
    url = config.listener_value(listener, rows.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL, OAUTHBEARER)
    return None if url is None else oauth_settings(config, listener, url)


def oauth_settings(config: ListenerSettings, listener: str, keys_url: str) -> OauthSettings:
    """How tokens are validated with the keys at `keys_url`. `listener`: the one whose settings
    apply; empty for those of all listeners.
    """

    def of(setting: Setting[T]) -> T:
        return config.listener_value(listener, setting, OAUTHBEARER)

    login, audiences = of(rows.SASL_JAAS_CONFIG), of(rows.SASL_OAUTHBEARER_EXPECTED_AUDIENCE)
    return OauthSettings(
        JwksEndpoint(
            keys_url,
            "" if login is None else login.truststore,
            of(rows.SASL_OAUTHBEARER_JWKS_ENDPOINT_TOKEN_FILE) or "",
        ),
        TokenRules(
            audiences or (),
            of(rows.SASL_OAUTHBEARER_EXPECTED_ISSUER) or "",
            of(rows.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS),
            of(rows.SASL_OAUTHBEARER_SUB_CLAIM_NAME),
            of(rows.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME),
        ),
        of(rows.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS) / 1000,
        of(rows.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS) / 1000,
        of(rows.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS) / 1000,
    )


def accepts_plaintext(config: ListenerSettings, listener: str) -> bool:
    """True if a listener with TLS serves clients without it, too."""
    return listener == config.inter_broker_listener and config(rows.SSL_INTER_BROKER_OPTIONAL)


def inter_broker_security(config: ListenerSettings) -> ClientSecurity:
    """TLS and login of this broker's connections to other brokers, from the settings of the
    inter-broker listener. Reads the files of the settings. Raises SettingError.
    """
    listener = config.inter_broker_listener
    security = _with_login(config, ClientSecurity(config.security_protocol(listener)))
    if security.uses_tls:
        algorithm = config.listener_value(listener, rows.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM)
        try:
            security = listener_tls(config, listener).secure_client(security, verifies_hostname=bool(algorithm))
            security = replace(security, is_tls_optional=config(rows.SSL_INTER_BROKER_OPTIONAL))
        except TlsConfigError as reason:
            raise SettingError([f"brokers cannot connect to each other on listener {listener}: {reason}"]) from None
    return security


def _with_login(config: ListenerSettings, security: ClientSecurity) -> ClientSecurity:
    """`security` with the login of brokers among themselves, if it uses SASL."""
    mechanism = config(rows.SASL_MECHANISM_INTER_BROKER_PROTOCOL)
    if not security.uses_sasl or mechanism is None:
        return security
    login = config.listener_value(config.inter_broker_listener, rows.SASL_JAAS_CONFIG, mechanism)
    security = replace(security, is_login_optional=config(rows.SASL_INTER_BROKER_OPTIONAL))
    if login is None:
        return security.with_login(mechanism, "", "")
    return security.with_login(mechanism, login.username, login.password)


def inter_broker_users(config: ListenerSettings) -> dict[str, str]:
    """Passwords by user name, from the JAAS login module of the inter-broker listener: the broker's
    own login, and each `user_NAME`."""
    listener, mechanism = config.inter_broker_listener, config(rows.SASL_MECHANISM_INTER_BROKER_PROTOCOL)
    login = config.listener_value(listener, rows.SASL_JAAS_CONFIG, mechanism) if mechanism else None
    return {} if login is None else {**login.users, login.username: login.password}


# Validation of the settings that a broker is started with


def find_security_problems(config: ListenerSettings) -> Iterator[str]:
    """The reasons why the SASL settings of listeners, or of brokers among themselves, cannot work,
    one sentence each.
    """
    for listener in config.listeners:
        if config.security_protocol(listener.name) in SASL_PROTOCOLS:
            yield from _find_sasl_problems(config, listener)
            yield from _find_oauth_problems(config, listener)
    inter_broker = config.inter_broker_listener
    if config.security_protocol(inter_broker) in SASL_PROTOCOLS and listener_sasl(config, inter_broker).mechanisms:
        yield from _find_login_problems(config)


def _find_sasl_problems(config: ListenerSettings, listener: Listener) -> Iterator[str]:
    sasl, prefix = listener_sasl(config, listener.name), f"{LISTENER_PREFIX}{listener.name.lower()}"
    if not sasl.mechanisms:
        yield (
            f"listeners has {listener} with SASL, and {rows.SASL_ENABLED_MECHANISMS.name} is empty; "
            f"allowed: {rows.SASL_ENABLED_MECHANISMS.type.allowed}"
        )
    if PLAIN in sasl.mechanisms and not sasl.plain_users:
        yield (
            f"{prefix}.plain.{rows.SASL_JAAS_CONFIG.name} names no users for {listener}; "
            f"allowed: {rows.SASL_JAAS_CONFIG.type.allowed}"
        )


def _find_oauth_problems(config: ListenerSettings, listener: Listener) -> Iterator[str]:
    url = rows.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
    if OAUTHBEARER in listener_sasl(config, listener.name).mechanisms and listener_oauth(config, listener.name) is None:
        yield f"listeners has {listener} with OAUTHBEARER, and {url.name} is not set; allowed: {url.type.allowed}"


def _find_login_problems(config: ListenerSettings) -> Iterator[str]:
    """The reasons why brokers could not log in to each other."""
    setting, listener = rows.SASL_MECHANISM_INTER_BROKER_PROTOCOL, config.inter_broker_listener
    sasl, security = listener_sasl(config, listener), _with_login(config, ClientSecurity("SASL_SSL"))
    mechanism = security.mechanism
    if not mechanism:
        yield (
            f"brokers would connect to each other on {listener}, which has SASL, and {setting.name} is not set; "
            f"allowed: {setting.type.allowed}"
        )
        return
    jaas = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{rows.SASL_JAAS_CONFIG.name}"
    if mechanism not in sasl.mechanisms:
        enabled = ", ".join(sasl.mechanisms)
        yield f"{setting.name} is {mechanism}; allowed: those of {rows.SASL_ENABLED_MECHANISMS.name} ({enabled})"
        return
    if not (security.username and security.password):
        yield f"{jaas} has no username and password, with which this broker logs in to others"
    elif mechanism == PLAIN and sasl.plain_users.get(security.username) != security.password:
        yield f"{jaas} has no user_{security.username} with the same password: no other broker could log in to this one"
