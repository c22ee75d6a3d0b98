"""The brokers' settings by which a mirror reaches its source, from the Mirror and its Secrets.
Pure.

Brokers do not return secret values. So that these are not set again at every reconcile,
`credentials.version` names the version of the Secrets that was set last.
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
    """A Secret does not exist, may not be read or is not the operator's, or lacks a key or a valid
    value. The message contains no values.
    """


@dataclass(frozen=True, slots=True)
class ObservedSecret:
    """`version`: changes whenever the values do."""

    values: Mapping[str, str] = field(repr=False)
    version: str


def secret_values(secret: Json) -> dict[str, str]:
    """A Secret's values that are text. Raises SecretUnusable if an API server would not accept
    it.
    """
    return {key: it for key, it in secret_contents(secret).items() if isinstance(it, str)}


def secret_contents(secret: Json) -> dict[str, str | bytes]:
    """All values of a Secret: text, or bytes where a value is not text. Raises SecretUnusable."""
    name = secret["metadata"]["name"]
    try:
        decoded = {key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()}
    except (binascii.Error, TypeError):
        raise SecretUnusable(f"Secret {name}: data is not base64-encoded") from None
    texts = {key: text_or_bytes(it) for key, it in decoded.items()}
    return texts | {key: str(value) for key, value in (secret.get("stringData") or {}).items()}


def text_or_bytes(content: bytes) -> str | bytes:
    """Text if it is UTF-8, otherwise the bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def read_secret_value(secrets: Mapping[str, ObservedSecret], name: str, key: str, where: str = "") -> str:
    """A value that must exist and not be empty. `where`: the field of the spec that refers to the
    Secret, with which the error's message begins; or empty. Raises SecretUnusable.
    """
    prefix = f"{where}: " if where else ""
    if name not in secrets:
        raise SecretUnusable(f"{prefix}Secret {name} does not exist")
    values = secrets[name].values
    if values.get(key) == "":
        raise SecretUnusable(f"{prefix}{key} of Secret {name} is empty")
    if key not in values:
        present = ", ".join(sorted(values)) or "nothing"
        raise SecretUnusable(f"{prefix}Secret {name} has no {key}; it has: {present}")
    return values[key]


def secret_names(mirror: Mirror) -> list[str]:
    """Names of the Secrets that a Mirror refers to."""
    source = mirror.spec.source
    refs = [source.tls and source.tls.ca_secret_ref, source.credentials and source.credentials.secret_ref]
    return sorted({ref.name for ref in refs if ref})


def uses_sasl(mirror: Mirror) -> bool:
    """True if brokers log in at the source by SASL."""
    credentials = mirror.spec.source.credentials
    return credentials is not None and credentials.mechanism != _CLIENT_CERTIFICATE


def credential_settings(mirror: Mirror, secrets: Mapping[str, ObservedSecret]) -> dict[str, str]:
    """Empty for a source without TLS and login. `secrets`: those that exist, by name. Raises
    SecretUnusable.
    """
    source = mirror.spec.source
    tls, credentials = source.tls, source.credentials
    settings: dict[str, str] = {}
    if tls is not None and tls.ca_secret_ref is not None:
        settings["ssl.truststore.certificates"] = read_secret_value(secrets, tls.ca_secret_ref.name, "ca.crt")
    if credentials is not None:
        name = credentials.secret_ref.name
        if credentials.mechanism == _CLIENT_CERTIFICATE:
            prefix = "user" if name in secrets and "user.key" in secrets[name].values else "tls"
            settings["ssl.keystore.certificate.chain"] = read_secret_value(secrets, name, f"{prefix}.crt")
            settings["ssl.keystore.key"] = read_secret_value(secrets, name, f"{prefix}.key")
        else:
            settings["sasl.mechanism"] = credentials.mechanism
            settings["sasl.username"] = read_secret_value(secrets, name, "username")
            settings["sasl.password"] = read_secret_value(secrets, name, "password")
    encrypted = tls is not None or "ssl.keystore.key" in settings
    if encrypted or settings:
        logged_in = "SASL_" if "sasl.mechanism" in settings else ""
        settings["security.protocol"] = logged_in + ("SSL" if encrypted else "PLAINTEXT")
    if names := secret_names(mirror):
        settings[VERSION_SETTING] = " ".join(secrets[name].version for name in names)
    return settings


def user_settings(values: Mapping[str, str], version: str) -> dict[str, str]:
    """The settings by which brokers connect as a User of the source. `values`: data of its Secret,
    by key. `version`: changes with the values.
    """
    if "user.key" in values:
        login = {"ssl.keystore.certificate.chain": values["user.crt"], "ssl.keystore.key": values["user.key"]}
    else:
        login = {
            "sasl.mechanism": values["sasl.mechanism"],
            "sasl.username": values["username"],
            "sasl.password": values["password"],
        }
    settings = {"security.protocol": values["security.protocol"], **login, VERSION_SETTING: version}
    return settings | ({"ssl.truststore.certificates": values["ca.crt"]} if values.get("ca.crt") else {})


def redacted_changes(changes: Mapping[str, str | None]) -> str:
    """Changes of settings for people and logs, without secret values."""
    return ", ".join(
        f"{key} unset" if value is None else f"{key}={'(hidden)' if key in HIDDEN_SETTINGS else _short(value)}"
        for key, value in changes.items()
    )


def _short(value: str) -> str:
    return "(certificates)" if "-----BEGIN" in value else value
