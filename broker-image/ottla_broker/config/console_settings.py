"""Settings of the console that `http.listener` can serve."""

from ottla_broker.config.addresses import http_url
from ottla_broker.config.security_types import oidc_scope
from ottla_broker.config.setting import BROKER_SETTINGS, Section
from ottla_broker.config.value_types import boolean, one_of, secret, string

# fmt: off
_console = Section("Console", BROKER_SETTINGS)

CONSOLE_ENABLE = _console.row("console.enable", boolean(), False,
    "Whether `http.listener` serves the console: pages in a browser with the cluster's health, topics and groups. "
    "Requires the extra `console`. Where clients are authenticated or authorized, users must log in: with the names "
    "and passwords of the first listener with PLAIN or SCRAM, by `console.oidc.issuer`, or with the certificates that "
    "the listener of `http.security.listener` requests. With none of these the broker does not start. Access rules "
    "apply to users of the console as to clients. Off by default, because on an open cluster everyone who reaches "
    "`http.listener` can read what the pages show.",
    is_ottla_only=True)
CONSOLE_WRITE = _console.row("console.write", one_of("login", "everyone", "nobody"), "login",
    "Who may use the pages that create and delete topics, change their configs, produce records and reset offsets of "
    "groups. `login`: users who have logged in. `everyone`: also users of an open cluster, where nobody logs in. "
    "`nobody`: the console only reads. Access rules apply to each change. `ottla up` sets `everyone`, because it "
    "serves its consoles to the local machine only.",
    is_ottla_only=True)
CONSOLE_OIDC_ISSUER = _console.row("console.oidc.issuer", http_url(), None,
    "Issuer of an OpenID Connect provider by which users of the console log in, exactly as its tokens name it. Its "
    "endpoints are read from `/.well-known/openid-configuration` below it. `sasl.oauthbearer.sub.claim.name` and "
    "`sasl.oauthbearer.clock.skew.seconds` apply to id tokens too, with the values of the first listener with "
    "OAUTHBEARER, if there is one. Not set: users cannot log in by OpenID Connect.",
    is_ottla_only=True)
CONSOLE_OIDC_CLIENT_ID = _console.row("console.oidc.client.id", string("a text", empty=False), None,
    "Client id of the console at the provider, which id tokens must have as their audience. Required with "
    "`console.oidc.issuer`.", is_ottla_only=True)
CONSOLE_OIDC_CLIENT_SECRET = _console.row("console.oidc.client.secret", secret(), None,
    "Client secret of the console at the provider. Not set: the console is a public client. Logins use PKCE in both "
    "cases.", is_sensitive=True, is_ottla_only=True)
CONSOLE_OIDC_SCOPE = _console.row("console.oidc.scope", oidc_scope(), "openid",
    "Scopes that the console requests, separated by spaces. Claims such as `email` may need more than `openid`.",
    is_ottla_only=True)
CONSOLE_OIDC_TRUSTSTORE_LOCATION = _console.row("console.oidc.truststore.location", string("a file", empty=False), None,
    "File with the certificate authorities (PEM) that sign the provider's certificate. Not set: those of the login "
    "module of the first listener with OAUTHBEARER, or else the system's.", is_ottla_only=True)
CONSOLE_OIDC_REDIRECT_URI = _console.row("console.oidc.redirect.uri", http_url(), None,
    "URL of the console's `/login/oidc` as browsers reach it and as it is registered at the provider. Set it where a "
    "proxy terminates TLS. Not set: `/login/oidc` at the address with which the browser opened the console.",
    is_ottla_only=True)
