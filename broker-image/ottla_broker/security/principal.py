"""The authenticated identity of a client."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla_broker.security.principal_mapping import DEFAULT, PrincipalMapper


@dataclass(frozen=True, slots=True)
class Principal:
    """Kafka's form of an identity: `User:alice`. `token_authenticated`: logged in with a delegation
    token; allowed what the token's owner is allowed, except requests about delegation tokens.
    """

    kind: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_principal(text: str) -> Principal:
    """Parses TYPE:NAME."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")  # Kafka's name for clients without authentication

# RFC 2253's short names of attribute types; the ssl module returns OpenSSL's long ones.
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


def principal_from_certificate(peer: Mapping[str, Any] | None, mapper: PrincipalMapper = DEFAULT) -> Principal:
    """The principal of a client certificate as `SSLSocket.getpeercert` returns it: its subject in
    the form of RFC 2253, by `ssl.principal.mapping.rules`. ANONYMOUS for `peer` None, when the
    client presented no certificate, and for one without a subject. Raises NoMatchingRule.
    """
    if not peer or not peer.get("subject"):
        return ANONYMOUS
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(peer["subject"])
    ]
    return Principal("User", mapper.map_subject(",".join(parts)))


def _escaped(value: str) -> str:
    return re.sub(r"^ |^#| $", r"\\\g<0>", re.sub(r'[,+"\\<>;]', r"\\\g<0>", value))
