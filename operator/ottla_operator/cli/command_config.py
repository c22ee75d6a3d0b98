"""`--command-config`: TLS and SASL of the connection, from a file of client properties, as for
Kafka's tools.

Names are Kafka's, or librdkafka's where they differ (`ssl.ca.location`, `sasl.username`), so that
an existing file can be used. Certificates and keys are PEM. Unsupported properties of security are
errors; properties without a part in security (`client.id`, `request.timeout.ms`) are ignored.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from ottla_broker.wire import pem, properties
from ottla_broker.wire.client_security import MECHANISMS, PROTOCOLS, UNSECURED, ClientSecurity
from ottla_broker.wire.properties import InvalidEscape, Property
from ottla_operator.cli.exit_codes import CommandError, ExitCode, run_command
from ottla_operator.kafka.client import KafkaClient, connect

T = TypeVar("T")

SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.")
FILE_PROPERTIES: Final = {
    "ssl.truststore.location": "ssl.truststore.certificates",
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""Property that names a file → property that has the file's content."""
PEM_PROPERTIES: Final = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
KEYSTORE: Final = "ssl.keystore.location"
JAAS: Final = "sasl.jaas.config"
NO_HOSTNAME_VERIFICATION: Final = ("", "none")
ALLOWED_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "security.protocol": PROTOCOLS,
    "sasl.mechanism": MECHANISMS,
    "ssl.keystore.type": ("PEM",),
    "ssl.truststore.type": ("PEM",),
    "ssl.endpoint.identification.algorithm": ("https", *NO_HOSTNAME_VERIFICATION),
}
ALIASES: Final = {"sasl.mechanisms": "sasl.mechanism"}
SUPPORTED: Final = (
    *ALLOWED_VALUES,
    *FILE_PROPERTIES,
    *PEM_PROPERTIES,
    KEYSTORE,
    JAAS,
    "sasl.username",
    "sasl.password",
)
_JAAS_OPTION: Final = re.compile(
    r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)


def call_brokers(bootstrap: str, command_config: Path | None, work: Callable[[KafkaClient], Awaitable[T]]) -> T:
    """Runs a command's work with a connection to the brokers. Raises CommandError."""

    async def run() -> T:
        async with connect(bootstrap, security=read_security(command_config)) as client:
            return await work(client)

    return run_command(run())


def read_security(file: Path | None) -> ClientSecurity:
    """Security from a properties file; none without a file. Raises CommandError that names the
    file, and if a single property is wrong, also its line and name.
    """
    if file is None:
        return UNSECURED
    values: dict[str, str] = {}
    for property_ in _read_properties(file):
        values |= _resolve(file, property_)
    security = ClientSecurity(
        protocol=values.get("security.protocol", UNSECURED.protocol),
        trusted_certificates=values.get("ssl.truststore.certificates", ""),
        certificate_chain=values.get("ssl.keystore.certificate.chain", ""),
        key=values.get("ssl.keystore.key", ""),
        verifies_hostname=values.get("ssl.endpoint.identification.algorithm", "https") not in NO_HOSTNAME_VERIFICATION,
        mechanism=values.get("sasl.mechanism", ""),
        username=values.get("sasl.username", ""),
        password=values.get("sasl.password", ""),
    )
    if problems := security.find_problems():
        raise CommandError(ExitCode.usage, "\n".join(f"{file}: {it}" for it in problems))
    return security


def _read_properties(file: Path) -> Iterator[Property]:
    """The properties of security in the file, with names in `ALIASES` replaced. Raises
    CommandError.
    """
    try:
        for property_ in properties.parse_properties(file.read_text()):
            if property_.key.startswith(SECURITY_PREFIXES):
                yield property_._replace(key=ALIASES.get(property_.key, property_.key))
    except (OSError, UnicodeDecodeError, InvalidEscape) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(ExitCode.usage, f"{file}: {reason}") from error


def _resolve(file: Path, property_: Property) -> dict[str, str]:
    """The property, or those that it stands for, by name; with the content of a file instead of its
    path. Raises CommandError.
    """
    key, value = property_.key, property_.value
    if key not in SUPPORTED:
        _raise(file, property_, f"is not supported; supported: {', '.join(sorted(SUPPORTED))}")
    if key in ALLOWED_VALUES and value not in ALLOWED_VALUES[key]:
        allowed = ", ".join(it or "empty" for it in ALLOWED_VALUES[key])
        _raise(file, property_, f"cannot be {value!r}; allowed: {allowed}")
    if key in FILE_PROPERTIES:
        return {FILE_PROPERTIES[key]: _read_file(file, property_)}
    if key == KEYSTORE:
        return _split_keystore(file, property_)
    if key == JAAS:
        matches = _JAAS_OPTION.findall(value)
        options = {name: _unescape(double or single or bare) for name, double, single, bare in matches}
        if options.keys() != {"username", "password"}:
            _raise(file, property_, "has no username and password; OAuth and Kerberos are not supported")
        return {f"sasl.{name}": option for name, option in options.items()}
    return {key: value}


def _split_keystore(file: Path, property_: Property) -> dict[str, str]:
    """Certificate chain and key of a PEM keystore, as properties of their own. Raises
    CommandError.
    """
    text = _read_file(file, property_)
    chain = pem.find_certificates(text)
    if not (pem.has_key(text) and chain):
        _raise(file, property_, f"names {property_.value}, which does not have both a certificate and its key in PEM")
    key = reduce(lambda rest, certificate: rest.replace(certificate, ""), chain, text)
    return {"ssl.keystore.certificate.chain": "\n".join(chain), "ssl.keystore.key": key}


def _read_file(file: Path, property_: Property) -> str:
    """Content of the file that a property names, relative to the properties file. Raises
    CommandError.
    """
    try:
        return (file.parent / property_.value).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not PEM"
        _raise(file, property_, f"names {property_.value}: {reason}")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _raise(file: Path, property_: Property, message: str) -> NoReturn:
    raise CommandError(ExitCode.usage, f"{file}:{property_.line}: {property_.key} {message}")
