"""The Secret with which a client connects as a user. Pure.

Invariant: `sasl.jaas.config` holds the password that was last set on the brokers, because a Secret
is written only after that. If a Secret's `password` differs from the one in `sasl.jaas.config`, the
Secret was edited, or its User has got another source of the password: the password has to be set
again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla_broker.security.scram import ScramMechanism
from ottla_operator.plan.listener_certificates import AUTHORITIES
from ottla_operator.plan.listener_security import security_protocol
from ottla_operator.plan.objects.services import is_external
from ottla_operator.plan.scram_login import scram_login_module
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_listener import Listener
from ottla_operator.resources.user import User

Contents: TypeAlias = Mapping[str, str | bytes]
"""Data of a Secret by key: text, or bytes where the value is not text."""
CERTIFICATE: Final = "user.crt"
KEY: Final = "user.key"
KEYSTORE: Final = "user.p12"
TRUSTSTORE: Final = "ca.p12"
STORE_PASSWORD: Final = "user.password"
USERNAME: Final = "username"
PASSWORD: Final = "password"
JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
MAX_PASSWORD_LENGTH: Final = 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """The address and protocol with which a user connects. `authorities`: PEM; empty without TLS,
    or if the Cluster's Secret has none.
    """

    bootstrap: str
    protocol: str
    authorities: str = field(default="", repr=False)


def find_listener(cluster: Cluster, user: User) -> Listener | None:
    """The listener on which the user logs in: one inside the Kubernetes cluster if there is one.
    None if no listener has the user's authentication.
    """
    authentication = "SCRAM" if user.spec.authentication.type.startswith("SCRAM") else user.spec.authentication.type
    suitable = [it for it in cluster.listeners if it.authentication == authentication]
    return next((it for it in suitable if not is_external(it)), suitable[0] if suitable else None)


def client_access(
    listener: Listener, bootstrap: Mapping[str, str], tls_secret: ObservedSecret | None
) -> ClientAccess | None:
    """None while the listener's bootstrap address is unknown. `bootstrap`: by listener, of the
    Cluster's status. `tls_secret`: that of the Cluster's certificates.
    """
    if not (address := bootstrap.get(listener.name)):
        return None
    authorities = tls_secret.values.get(AUTHORITIES, "") if listener.tls and tls_secret else ""
    return ClientAccess(address, security_protocol(listener), authorities)


def check_password(password: str, source: str) -> None:
    """Raises SecretUnusable, without the password."""
    if not password:
        raise SecretUnusable(f"{source} is empty")
    if _CONTROL.search(password):
        raise SecretUnusable(f"{source} contains a line end or another control character; store it without them")
    if len(password) > MAX_PASSWORD_LENGTH:
        raise SecretUnusable(f"{source} is longer than {MAX_PASSWORD_LENGTH} characters")


def is_password_set(secret: Contents, user: str, password: str, mechanism: ScramMechanism) -> bool:
    """True if the Secret was written after this password was set on the brokers."""
    return secret.get(JAAS) == scram_login_module(user, password) and secret.get(MECHANISM) == mechanism.title


def scram_secret(user: str, password: str, mechanism: ScramMechanism, access: ClientAccess) -> dict[str, str]:
    """The Secret's data for a user with a password."""
    login = {MECHANISM: mechanism.title, JAAS: scram_login_module(user, password)}
    librdkafka = {MECHANISM: mechanism.title, "sasl.username": user, "sasl.password": password}
    return _secret({USERNAME: user, PASSWORD: password, **login}, login, librdkafka, access)


def certificate_secret(user: str, certificate: str, key: str, access: ClientAccess) -> dict[str, str]:
    """The Secret's data for a user with a client certificate. `user`: the principal's name.
    `certificate`, `key`: PEM.
    """
    java = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.strip(),
        "ssl.keystore.key": key.strip(),
    }
    librdkafka = {"ssl.certificate.location": CERTIFICATE, "ssl.key.location": KEY}
    return _secret({USERNAME: user, CERTIFICATE: certificate, KEY: key}, java, librdkafka, access)


def _secret(
    data: dict[str, str], java: dict[str, str], librdkafka: dict[str, str], access: ClientAccess
) -> dict[str, str]:
    """The Secret's data: `data`, address and protocol, and the properties of Java's clients and of
    librdkafka. `java`, `librdkafka`: the properties of the login."""
    connection = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    data, java, librdkafka = connection | data, connection | java, connection | librdkafka
    if access.authorities:
        data[AUTHORITIES] = access.authorities
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": access.authorities.strip()}
        librdkafka["ssl.ca.location"] = AUTHORITIES
    return {
        **data,
        "client.properties": "".join(f"{key}={_escape(value)}\n" for key, value in java.items()),
        "librdkafka.properties": "".join(f"{key}={value}\n" for key, value in librdkafka.items()),
    }


def _escape(value: str) -> str:
    """A value of Java's properties files, which are read as Latin-1."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "")
    text = f"\\{escaped}" if escaped.startswith(" ") else escaped
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[index : index + 2]) for index in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
