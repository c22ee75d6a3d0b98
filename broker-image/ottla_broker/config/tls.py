"""TLS of listeners: the certificate that the broker shows, and those that it asks clients for. All in PEM (KIP-651).

Each of these can also be given for one listener: `listener.name.NAME.ssl.…`, NAME in small letters.
"""

from ottla_broker.config.setting import Setting, Theme
from ottla_broker.config.value_types import ValueType, list_of, one_of, only, string, verbatim
from ottla_broker.wire.listener_tls import CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED, TLS_VERSIONS

_theme = Theme("TLS of listeners")
_STORE = "a keystore of Java's cannot be read; write keys and certificates as PEM (KIP-651)"
_DIFFERS = "it is the one kind that is read here"


def _pem(what: str) -> ValueType[str]:
    return verbatim()._replace(allowed=what)


SSL_KEYSTORE_TYPE = _theme.broker(
    "ssl.keystore.type", only(string(), "PEM", _STORE), "PEM", "What the keystore is.", differs=_DIFFERS
)
SSL_KEYSTORE_LOCATION: Setting[str | None] = _theme.broker(
    "ssl.keystore.location",
    string("a file"),
    None,
    "A file with the broker's private key and its certificate, followed by those that lead to the authority; it is read at start. Or "
    "`ssl.keystore.certificate.chain` and `ssl.keystore.key`.",
    importance="high",
)
SSL_KEYSTORE_CERTIFICATE_CHAIN: Setting[str | None] = _theme.broker(
    "ssl.keystore.certificate.chain",
    _pem("certificates in PEM"),
    None,
    "The broker's certificate, followed by those that lead to the authority.",
    importance="high",
    sensitive=True,
)
SSL_KEYSTORE_KEY: Setting[str | None] = _theme.broker(
    "ssl.keystore.key",
    _pem("a private key in PEM"),
    None,
    "The certificate's key.",
    importance="high",
    sensitive=True,
)
SSL_KEY_PASSWORD: Setting[str | None] = _theme.broker(
    "ssl.key.password",
    verbatim(),
    None,
    "The password of an encrypted private key.",
    importance="high",
    sensitive=True,
)
SSL_TRUSTSTORE_TYPE = _theme.broker(
    "ssl.truststore.type", only(string(), "PEM", _STORE), "PEM", "What the truststore is.", differs=_DIFFERS
)
SSL_TRUSTSTORE_LOCATION: Setting[str | None] = _theme.broker(
    "ssl.truststore.location",
    string("a file"),
    None,
    "A file with the authorities that may sign certificates of clients. Or `ssl.truststore.certificates`.",
    importance="high",
)
SSL_TRUSTSTORE_CERTIFICATES: Setting[str | None] = _theme.broker(
    "ssl.truststore.certificates",
    _pem("certificates in PEM"),
    None,
    "The authorities that may sign certificates of clients.",
    importance="high",
    sensitive=True,
)
SSL_CLIENT_AUTH = _theme.broker(
    "ssl.client.auth",
    one_of(CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED, any_case=True),
    CLIENT_AUTH_NONE,
    "Whether clients show certificates: `required`, or no connection; `requested`, or they are User:ANONYMOUS. A client's principal is the subject of its "
    "certificate, such as User:CN=alice,O=example.",
)
SSL_ENABLED_PROTOCOLS = _theme.broker(
    "ssl.enabled.protocols",
    list_of(*TLS_VERSIONS),
    tuple(TLS_VERSIONS),
    "The versions of TLS that clients may speak.",
)
