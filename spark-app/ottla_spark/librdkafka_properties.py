"""Translates client properties of the Java client to those of librdkafka.

Spark reads topics with the Java client, and transactions are written with librdkafka. A pipeline's
properties are the Java client's. Properties of security that librdkafka lacks are refused, because
a client without them would connect in another way than the pipeline says. TLS versions are not
refused: they are left out, as are other properties that librdkafka lacks, which tune the Java
client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ottla_spark.errors import PipelineError

_SAME: Final = frozenset(
    {
        "bootstrap.servers", "client.id", "client.dns.lookup", "security.protocol", "sasl.mechanism",
        "compression.type", "linger.ms", "metadata.max.age.ms", "ssl.key.password", "ssl.cipher.suites",
        "reconnect.backoff.ms", "reconnect.backoff.max.ms", "sasl.kerberos.service.name",
    }
)  # fmt: skip
_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
# Prefix of a store's properties → the Java client's property with its file, and for each type of
# store that librdkafka can read, librdkafka's property with the file.
_STORES: Final = {
    "ssl.truststore": ("ssl.truststore.location", {"PEM": "ssl.ca.location"}),
    "ssl.keystore": ("ssl.keystore.location", {"PKCS12": "ssl.keystore.location"}),
}
_PASSWORD_MODULES: Final = re.compile(
    r"(Plain|Scram)LoginModule\s+(required|requisite)\b(?P<options>.*);\s*$", re.DOTALL
)
_OPTION: Final = re.compile(r'(?P<name>\w+)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"')
_UNUSED: Final = frozenset({"ssl.truststore.type", "ssl.keystore.type", "ssl.enabled.protocols", "ssl.protocol"})


def to_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Raises PipelineError for a property of TLS or SASL that librdkafka does not have, except TLS
    versions.
    """
    found: dict[str, str] = {}
    locations = {name for name, _ in _STORES.values()}
    for name, value in properties.items():
        if name == "sasl.jaas.config":
            found |= _login(value)
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif name == "ssl.keystore.password":
            found[name] = value
        elif name in locations:
            found |= _store(name, value, properties)
        elif name in _SAME or name in _RENAMED:
            found[_RENAMED.get(name, name)] = value
        elif name.startswith(("ssl.", "sasl.")) and name not in _UNUSED:
            raise _refusal(name)
    return found


def parse_password_login(jaas: str) -> tuple[str, str] | None:
    """Name and password of a sasl.jaas.config; None if it logs in by other means."""
    module = _PASSWORD_MODULES.search(jaas)
    options = {it["name"]: _unescape(it["value"]) for it in _OPTION.finditer(module["options"])} if module else {}
    return (options["username"], options["password"]) if {"username", "password"} <= options.keys() else None


def _login(jaas: str) -> dict[str, str]:
    login = parse_password_login(jaas)
    if login is None:
        raise _refusal("sasl.jaas.config", "only PlainLoginModule and ScramLoginModule with username and password are")
    return {"sasl.username": login[0], "sasl.password": login[1]}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _store(name: str, value: str, properties: Mapping[str, str]) -> dict[str, str]:
    prefix = name.removesuffix(".location")
    types = _STORES[prefix][1]
    type_ = properties.get(f"{prefix}.type", "JKS").upper()
    if type_ not in types:
        raise _refusal(f"{prefix}.type={type_}", f"allowed: {' or '.join(types)}")
    return {types[type_]: value}


def _refusal(name: str, supported: str = "") -> PipelineError:
    reason = f" ({supported})" if supported else ""
    return PipelineError(
        f"the client property {name} is not supported for writing in transactions{reason}; "
        "change it, or set delivery: atLeastOnce in the sink"
    )
