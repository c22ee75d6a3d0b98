"""TLS and SASL of a client's connections.

Protocols, mechanisms and the names of PEM settings are Kafka's (KIP-651).
"""

import ssl
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from ottla_broker.wire import pem

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms that Ottla's own client supports."""
OAUTHBEARER: Final = "OAUTHBEARER"
SERVER_MECHANISMS: Final = (*MECHANISMS, OAUTHBEARER)


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Certificates and key are PEM. Without `trusted_certificates` the system's authorities are
    trusted.

    `verifies_hostname`: the server's certificate must name the host of the connection, or
    `server_name` if it is set. `is_login_optional`: the client goes on without a login where the
    listener has no SASL. `is_tls_optional`: it goes on without TLS where the listener has none.
    """

    protocol: str = PLAINTEXT
    trusted_certificates: str = ""
    certificate_chain: str = ""
    key: str = field(default="", repr=False)
    verifies_hostname: bool = True
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    is_login_optional: bool = False
    is_tls_optional: bool = False
    server_name: str = ""

    def with_login(self, mechanism: str, username: str, password: str) -> "ClientSecurity":
        return replace(self, mechanism=mechanism, username=username, password=password)

    @property
    def uses_tls(self) -> bool:
        return self.protocol in TLS_PROTOCOLS

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in SASL_PROTOCOLS

    def find_problems(self) -> list[str]:
        """Problems of the settings, which are named as in the settings of a mirror
        (`config.mirror_settings`).
        """
        problems: list[str] = []
        if self.uses_sasl:
            required = {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
            problems += [f"security.protocol {self.protocol} needs {it}" for it, value in required.items() if not value]
        if bool(self.certificate_chain) != bool(self.key):
            problems.append("ssl.keystore.certificate.chain and ssl.keystore.key must be set together")
        elif self.uses_tls:
            try:
                self.ssl_context()
            except (ssl.SSLError, ValueError) as reason:
                problems.append(f"the PEM of ssl.truststore.certificates or of ssl.keystore.* cannot be used: {reason}")
        return problems

    def ssl_context(self) -> ssl.SSLContext | None:
        """None without TLS. Raises ssl.SSLError, ValueError if the PEM is invalid."""
        if not self.uses_tls:
            return None
        return _ssl_context(
            self.trusted_certificates, self.certificate_chain, self.key, self.key_password, self.verifies_hostname
        )


UNSECURED: Final = ClientSecurity()


@lru_cache(maxsize=64)
def _ssl_context(
    trusted: str, certificate_chain: str, key: str, key_password: str, verifies_hostname: bool
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted or None)
    context.check_hostname = verifies_hostname
    if certificate_chain:
        with pem.open_as_file(f"{certificate_chain}\n{key}\n") as path:
            context.load_cert_chain(path, password=key_password or _reject_encrypted_key)
    return context


def _reject_encrypted_key() -> str:
    raise ValueError("the key is encrypted; provide it without a password")
