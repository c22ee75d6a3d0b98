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
class Secured:
    """`authorities`, `certificate`, `key`: PEM; without authorities, the system's are trusted. `checks_name`: whether the server's certificate must name
    the host that was asked for. What is secret is not shown in a log."""

    protocol: str = PLAINTEXT
    authorities: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)
    checks_name: bool = True
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def logs_in(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def problems(self) -> list[str]:
        """What speaks against it, by Kafka's names of the settings."""
        found: list[str] = []
        if self.logs_in:
            found += [
                f"security.protocol {self.protocol} needs {name}"
                for name, value in (
                    ("sasl.mechanism", self.mechanism),
                    ("sasl.username", self.username),
                    ("sasl.password", self.password),
                )
                if not value
            ]
        if bool(self.certificate) != bool(self.key):
            found.append("ssl.keystore.certificate.chain and ssl.keystore.key go together")
        elif self.is_encrypted:
            try:
                self.context()
            except (ssl.SSLError, ValueError) as reason:
                found.append(f"the PEM of ssl.truststore.certificates or of ssl.keystore.* cannot be used: {reason}")
        return found

    def context(self) -> ssl.SSLContext | None:
        """None where nothing is encrypted. ssl.SSLError, ValueError for what is no PEM."""
        if not self.is_encrypted:
            return None
        return _context(self.authorities, self.certificate, self.key, self.checks_name)


@lru_cache(maxsize=64)
def _context(authorities: str, certificate: str, key: str, checks_name: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authorities or None)
    context.check_hostname = checks_name
    if certificate:
        with pem.as_file(f"{certificate}\n{key}\n") as file:
            context.load_cert_chain(file, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give it without a password")
