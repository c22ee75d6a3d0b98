"""How users of the console log in, by the settings of the broker's listeners. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from ottla_broker.config import (
    AUTHORIZER_CLASS_NAME,
    CONSOLE_ENABLE,
    CONSOLE_OIDC_CLIENT_ID,
    CONSOLE_OIDC_CLIENT_SECRET,
    CONSOLE_OIDC_ISSUER,
    CONSOLE_OIDC_REDIRECT_URI,
    CONSOLE_OIDC_SCOPE,
    CONSOLE_OIDC_TRUSTSTORE_LOCATION,
    HTTP_SECURITY_LISTENER,
    SSL_CLIENT_AUTH,
    Config,
    SettingError,
)
from ottla_broker.config.listener_security import OauthSettings, listener_sasl, oauth_settings
from ottla_broker.security.scram import MECHANISMS
from ottla_broker.wire.client_security import OAUTHBEARER, PLAIN, SASL_PROTOCOLS, TLS_PROTOCOLS
from ottla_broker.wire.listener_tls import CLIENT_AUTH_NONE, CLIENT_AUTH_REQUIRED

PASSWORD_MECHANISMS: Final = frozenset({PLAIN, *MECHANISMS})


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """`client_secret`: empty for a public client. `redirect_uri`: if it is empty, it is made from
    the host of each request. `oauth`: names the claim of the principal, and the authorities that
    sign the provider's certificate.
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    redirect_uri: str
    oauth: OauthSettings


@dataclass(frozen=True, slots=True)
class LoginMethods:
    """`password_listener`: the listener whose users log in with their passwords.
    `certificate_listener`: the listener by whose rules browsers' certificates become principals.
    None: the console has no such logins.
    """

    password_listener: str | None
    certificate_listener: str | None
    oidc: OidcSettings | None


def find_login_methods(config: Config) -> LoginMethods | None:
    """None on an open cluster. Raises SettingError where users of the console could not log in."""
    oidc = find_oidc_settings(config)
    if not (reasons := list(iter_authentication_settings(config))):
        return None
    methods = LoginMethods(find_password_listener(config), find_certificate_listener(config), oidc)
    if methods == LoginMethods(None, None, None):
        problem = (
            f"{CONSOLE_ENABLE.name}=true, but nobody could log in to the console, and clients of this broker are "
            f"authenticated or authorized ({'; '.join(reasons)}): give a listener PLAIN or SCRAM, set "
            f"{CONSOLE_OIDC_ISSUER.name}, name a listener with SSL that asks for certificates in "
            f"{HTTP_SECURITY_LISTENER.name}, or set {CONSOLE_ENABLE.name}=false"
        )
        raise SettingError([problem])
    return methods


def iter_authentication_settings(config: Config) -> Iterator[str]:
    """The settings by which clients of this broker are authenticated or authorized, as text; none
    on an open cluster.
    """
    if name := config(AUTHORIZER_CLASS_NAME):
        yield f"{AUTHORIZER_CLASS_NAME.name}={name}"
    for listener in config.listeners:
        protocol = config.security_protocol(listener.name)
        client_auth = config.listener_value(listener.name, SSL_CLIENT_AUTH)
        if protocol in SASL_PROTOCOLS:
            yield f"listener {listener.name} has {protocol}"
        elif protocol in TLS_PROTOCOLS and client_auth == CLIENT_AUTH_REQUIRED:
            yield f"listener {listener.name} requires certificates of clients"


def find_password_listener(config: Config) -> str | None:
    """The first listener with PLAIN or SCRAM. The inter-broker listener comes last. None without
    one.
    """
    return _find_sasl_listener(config, PASSWORD_MECHANISMS)


def find_certificate_listener(config: Config) -> str | None:
    """`http.security.listener`, if its clients log in with certificates; else None. Clients of a
    listener with SASL do not.
    """
    name = config(HTTP_SECURITY_LISTENER)
    if name not in {one.name for one in config.listeners if config.security_protocol(one.name) == "SSL"}:
        return None
    assert name is not None
    return None if config.listener_value(name, SSL_CLIENT_AUTH) == CLIENT_AUTH_NONE else name


def find_oidc_settings(config: Config) -> OidcSettings | None:
    """None without an issuer. Raises SettingError."""
    issuer, client_id = config(CONSOLE_OIDC_ISSUER), config(CONSOLE_OIDC_CLIENT_ID)
    secret, redirect_uri = config(CONSOLE_OIDC_CLIENT_SECRET), config(CONSOLE_OIDC_REDIRECT_URI)
    if issuer is None:
        if client_id is None and secret is None:
            return None
        given = CONSOLE_OIDC_CLIENT_SECRET if client_id is None else CONSOLE_OIDC_CLIENT_ID
        raise SettingError([f"{given.name} is set, and {CONSOLE_OIDC_ISSUER.name} is not"])
    if client_id is None:
        raise SettingError([f"{CONSOLE_OIDC_ISSUER.name}={issuer} needs {CONSOLE_OIDC_CLIENT_ID.name}"])
    listener = _find_sasl_listener(config, frozenset({OAUTHBEARER})) or ""
    oauth = oauth_settings(config, listener, issuer)  # the provider's metadata names the URL of its keys
    if truststore := config(CONSOLE_OIDC_TRUSTSTORE_LOCATION):
        oauth = replace(oauth, endpoint=replace(oauth.endpoint, trusted_certificates=truststore))
    return OidcSettings(issuer, client_id, secret or "", config(CONSOLE_OIDC_SCOPE), redirect_uri or "", oauth)


def _find_sasl_listener(config: Config, mechanisms: frozenset[str]) -> str | None:
    names = [one.name for one in config.listeners if config.security_protocol(one.name) in SASL_PROTOCOLS]
    usable = [one for one in names if mechanisms & set(listener_sasl(config, one).mechanisms)]
    return min(usable, key=lambda it: it == config.inter_broker_listener, default=None)
