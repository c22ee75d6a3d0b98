"""Who is on the other end of a connection."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Principal:
    """Kafka's form of an identity: `User:alice`. Made once, when a connection has authenticated."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")  # Kafka's name for who comes in over PLAINTEXT

# RFC 2253's short names of what a distinguished name is made of; the ssl module tells OpenSSL's long ones.
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def principal_from_certificate(peer: Mapping[str, Any] | None) -> Principal:
    """Of a client's certificate, as `SSLSocket.getpeercert` gives it: its subject in the form of RFC 2253, the last part first, which is what Kafka does
    with `ssl.principal.mapping.rules=DEFAULT`. None: the client has shown none."""
    if not peer or not peer.get("subject"):
        return ANONYMOUS
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(peer["subject"])
    ]
    return Principal("User", ",".join(parts))


def _escaped(value: str) -> str:
    return re.sub(r"^ |^#| $", r"\\\g<0>", re.sub(r'[,+"\\<>;]', r"\\\g<0>", value))
