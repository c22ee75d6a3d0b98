"""How a client secures its connections: encrypted (TLS), and logged in (SASL). Kafka's protocols, mechanisms and, for PEM, names (KIP-651)."""

import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ottla_broker.wire import pem

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """`authorities`, `certificate`, `key`: PEM; without authorities, the system's are trusted. `checks_name`: whether the server's certificate must name
    the host that was asked for. What is secret is not shown in a log."""

    protocol: str = PLAINTEXT
    trusted_certificates: str = ""
    certificate_chain: str = ""
    key: str = field(default="", repr=False)
    verifies_hostname: bool = True
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def find_problems(self) -> list[str]:
        """What speaks against it, by Kafka's names of the settings."""
        found: list[str] = []
        if self.uses_sasl:
            found += [
                f"security.protocol {self.protocol} needs {name}"
                for name, value in (
                    ("sasl.mechanism", self.mechanism),
                    ("sasl.username", self.username),
                    ("sasl.password", self.password),
                )
                if not value
            ]
        if bool(self.certificate_chain) != bool(self.key):
            found.append("ssl.keystore.certificate.chain and ssl.keystore.key go together")
        elif self.uses_tls:
            try:
                self.ssl_context()
            except (ssl.SSLError, ValueError) as reason:
                found.append(f"the PEM of ssl.truststore.certificates or of ssl.keystore.* cannot be used: {reason}")
        return found

    def ssl_context(self) -> ssl.SSLContext | None:
        """None where nothing is encrypted. ssl.SSLError, ValueError for what is no PEM."""
        if not self.uses_tls:
            return None
        return _context(self.trusted_certificates, self.certificate_chain, self.key, self.verifies_hostname)


@lru_cache(maxsize=64)
def _context(authorities: str, certificate: str, key: str, checks_name: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authorities or None)
    context.check_hostname = checks_name
    if certificate:
        with pem.open_as_file(f"{certificate}\n{key}\n") as file:
            context.load_cert_chain(file, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give it without a password")
