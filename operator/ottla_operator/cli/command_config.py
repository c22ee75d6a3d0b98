"""How a command reaches brokers that want TLS or a login: a file of client properties, as Kafka's own tools take with `--command-config`.

Kafka's names, and librdkafka's where they differ (`ssl.ca.location`, `sasl.username`), so that the file a person has serves. Certificates and keys are PEM. What
says how a client is secured and is not understood is refused; anything else (`client.id`, `request.timeout.ms`) is for other programs and is passed over.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import reduce
from pathlib import Path
from typing import Final, NoReturn

from ottla_broker.wire import pem, properties
from ottla_broker.wire.client_security import MECHANISMS, PROTOCOLS, UNSECURED, ClientSecurity
from ottla_broker.wire.properties import InvalidEscape, Property
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.kafka.client import KafkaClient, connect

OURS: Final = ("security.", "ssl.", "sasl.", "enable.ssl.")
IN_FILES: Final = {
    "ssl.truststore.location": "ssl.truststore.certificates",
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""The name of a file → of the setting that has its text."""
TEXTS: Final = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
KEYSTORE: Final = "ssl.keystore.location"
JAAS: Final = "sasl.jaas.config"
ANY_HOST: Final = ("", "none")
ONE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "security.protocol": PROTOCOLS,
    "sasl.mechanism": MECHANISMS,
    "ssl.keystore.type": ("PEM",),
    "ssl.truststore.type": ("PEM",),
    "ssl.endpoint.identification.algorithm": ("https", *ANY_HOST),
}
OTHER_NAMES: Final = {"sasl.mechanisms": "sasl.mechanism"}
KNOWN: Final = (*ONE_OF, *IN_FILES, *TEXTS, KEYSTORE, JAAS, "sasl.username", "sasl.password")
_LOGIN: Final = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def link_to(bootstrap: str, command_config: Path | None) -> AbstractAsyncContextManager[KafkaClient]:
    """Failure, and what `connected` raises."""
    return connect(bootstrap, secured=secured(command_config))


def secured(file: Path | None) -> ClientSecurity:
    """What the file says; without one, nothing is encrypted. Failure names file, line, setting and what is allowed."""
    if file is None:
        return UNSECURED
    found: dict[str, str] = {}
    for it in _read(file):
        found |= _understood(file, it)
    made = ClientSecurity(
        protocol=found.get("security.protocol", UNSECURED.protocol),
        trusted_certificates=found.get("ssl.truststore.certificates", ""),
        certificate_chain=found.get("ssl.keystore.certificate.chain", ""),
        key=found.get("ssl.keystore.key", ""),
        verifies_hostname=found.get("ssl.endpoint.identification.algorithm", "https") not in ANY_HOST,
        mechanism=found.get("sasl.mechanism", ""),
        username=found.get("sasl.username", ""),
        password=found.get("sasl.password", ""),
    )
    if problems := made.find_problems():
        raise CommandError(ExitCode.usage, "\n".join(f"{file}: {it}" for it in problems))
    return made


def _read(file: Path) -> Iterator[Property]:
    try:
        for it in properties.parse_properties(file.read_text()):
            if it.key.startswith(OURS):
                yield it._replace(key=OTHER_NAMES.get(it.key, it.key))
    except (OSError, UnicodeDecodeError, InvalidEscape) as reason:
        why = reason.strerror if isinstance(reason, OSError) else reason
        raise CommandError(ExitCode.usage, f"{file}: {why}") from reason


def _understood(file: Path, it: Property) -> dict[str, str]:
    """The settings that this one stands for."""
    if it.key not in KNOWN:
        _refuse(file, it, f"is not known here; it may be {', '.join(sorted(KNOWN))}")
    if it.key in ONE_OF and it.value not in ONE_OF[it.key]:
        _refuse(file, it, f"cannot be {it.value!r}; it may be {', '.join(each or 'empty' for each in ONE_OF[it.key])}")
    if it.key in IN_FILES:
        return {IN_FILES[it.key]: _text(file, it)}
    if it.key == KEYSTORE:
        text = _text(file, it)
        if not (pem.has_key(text) and pem.find_certificates(text)):
            _refuse(file, it, f"names {it.value}, which has not both a certificate and its key in PEM")
        chain = pem.find_certificates(text)
        key = reduce(lambda left, each: left.replace(each, ""), chain, text)
        return {"ssl.keystore.certificate.chain": "\n".join(chain), "ssl.keystore.key": key}
    if it.key == JAAS:
        login = {name: _unquoted(quoted or single or bare) for name, quoted, single, bare in _LOGIN.findall(it.value)}
        if login.keys() != {"username", "password"}:
            _refuse(file, it, "has no username and password; OAuth and Kerberos are not spoken here")
        return {f"sasl.{name}": value for name, value in login.items()}
    return {it.key: it.value}


def _text(file: Path, it: Property) -> str:
    """Of the file that a setting names; a relative name is looked for beside the file of settings."""
    try:
        return (file.parent / it.value).read_text()
    except (OSError, UnicodeDecodeError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else "it is no PEM"
        _refuse(file, it, f"names {it.value}: {why}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _refuse(file: Path, it: Property, why: str) -> NoReturn:
    raise CommandError(ExitCode.usage, f"{file}:{it.line}: {it.key} {why}")
