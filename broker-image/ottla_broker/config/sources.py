"""How the source of a mirror is reached: what several of its settings say together."""

from collections.abc import Callable

from ottla_broker.config.mirrors import (
    MIRROR_SASL_MECHANISM,
    MIRROR_SASL_PASSWORD,
    MIRROR_SASL_USERNAME,
    MIRROR_SECURITY_PROTOCOL,
    MIRROR_SSL_ENDPOINT_IDENTIFICATION,
    MIRROR_SSL_KEYSTORE_CERTIFICATE_CHAIN,
    MIRROR_SSL_KEYSTORE_KEY,
    MIRROR_SSL_TRUSTSTORE_CERTIFICATES,
)
from ottla_broker.config.setting import Setting
from ottla_broker.wire.client_security import ClientSecurity


def source_security(of: Callable[[Setting[str]], str]) -> ClientSecurity:
    """`of`: a setting's value."""
    return ClientSecurity(
        of(MIRROR_SECURITY_PROTOCOL),
        of(MIRROR_SSL_TRUSTSTORE_CERTIFICATES),
        of(MIRROR_SSL_KEYSTORE_CERTIFICATE_CHAIN),
        of(MIRROR_SSL_KEYSTORE_KEY),
        of(MIRROR_SSL_ENDPOINT_IDENTIFICATION) == "https",
        of(MIRROR_SASL_MECHANISM),
        of(MIRROR_SASL_USERNAME),
        of(MIRROR_SASL_PASSWORD),
    )
