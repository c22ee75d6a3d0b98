"""How the brokers of a mirror reach its source: what the Mirror resource and its Secrets mean in the brokers' settings. Pure.

Brokers show nobody what is secret. So that it is not set again at every look, `credentials.version` names which version of the Secrets was set last.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json

VERSION_SETTING: Final = "credentials.version"
HIDDEN_SETTINGS: Final = frozenset({"sasl.password", "ssl.keystore.key"})
"""Settings that brokers do not show."""

SETTING_NAMES: Final = (
    "security.protocol",
    "ssl.truststore.certificates",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    VERSION_SETTING,
)
_CLIENT_CERTIFICATE: Final = "TLS"


class SecretUnusable(Exception):
    """A Secret is not there, or lacks something; in words, without anything of its content."""


@dataclass(frozen=True, slots=True)
class ObservedSecret:
    """`version`: changes whenever the values do."""

    values: Mapping[str, str] = field(repr=False)
    version: str


def secret_values(secret: Json) -> dict[str, str]:
    """Of a Secret, as text. Unusable when it is none that an API server would take."""
    name = secret["metadata"]["name"]
    try:
        found = {
            key: base64.b64decode(value, validate=True).decode() for key, value in (secret.get("data") or {}).items()
        }
    except (binascii.Error, UnicodeDecodeError, TypeError):
        raise SecretUnusable(f"Secret {name}: data is not text in base64") from None
    return found | {key: str(value) for key, value in (secret.get("stringData") or {}).items()}


def secret_names(mirror: Mirror) -> list[str]:
    """Names of the Secrets that it speaks of."""
    source = mirror.spec.source
    refs = [source.tls and source.tls.ca_secret_ref, source.credentials and source.credentials.secret_ref]
    return sorted({ref.name for ref in refs if ref})


def credential_settings(mirror: Mirror, secrets: Mapping[str, ObservedSecret]) -> dict[str, str]:
    """`secrets`: by name, those that are there. Nothing for a source that is reached in the open. Unusable."""
    source = mirror.spec.source
    tls, credentials = source.tls, source.credentials
    found: dict[str, str] = {}
    if tls is not None and tls.ca_secret_ref is not None:
        found["ssl.truststore.certificates"] = _of(secrets, tls.ca_secret_ref.name, "ca.crt")
    if credentials is not None:
        name = credentials.secret_ref.name
        if credentials.mechanism == _CLIENT_CERTIFICATE:
            found["ssl.keystore.certificate.chain"] = _of(secrets, name, "tls.crt")
            found["ssl.keystore.key"] = _of(secrets, name, "tls.key")
        else:
            found["sasl.mechanism"] = credentials.mechanism
            found["sasl.username"] = _of(secrets, name, "username")
            found["sasl.password"] = _of(secrets, name, "password")
    encrypted = tls is not None or "ssl.keystore.key" in found
    if encrypted or found:
        logged_in = "SASL_" if "sasl.mechanism" in found else ""
        found["security.protocol"] = logged_in + ("SSL" if encrypted else "PLAINTEXT")
    if names := secret_names(mirror):
        found[VERSION_SETTING] = " ".join(secrets[name].version for name in names)
    return found


def redacted_changes(changes: Mapping[str, str | None]) -> str:
    """What was set, for people and for logs."""
    return ", ".join(
        f"no {key}" if value is None else f"{key}={'(hidden)' if key in HIDDEN_SETTINGS else _short(value)}"
        for key, value in changes.items()
    )


def _short(value: str) -> str:
    return "(certificates)" if "-----BEGIN" in value else value


def _of(secrets: Mapping[str, ObservedSecret], name: str, key: str) -> str:
    if name not in secrets:
        raise SecretUnusable(f"there is no Secret {name}")
    values = secrets[name].values
    if not values.get(key):
        there = ", ".join(sorted(values)) or "nothing"
        raise SecretUnusable(f"Secret {name} has no {key}; it has: {there}")
    return values[key]
