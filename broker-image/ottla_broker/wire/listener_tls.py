"""How a listener secures connections with TLS: what Kafka's ssl.* settings mean, with keys and certificates in PEM (KIP-651)."""

import ssl
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire import pem
from ottla_broker.wire.server_certificate import (
    InvalidCertificate,
    ServerCertificate,
    inspect_certificate,
    load_certificate,
)

CLIENT_AUTH_NONE: Final = "none"
CLIENT_AUTH_REQUESTED: Final = "requested"
CLIENT_AUTH_REQUIRED: Final = "required"
TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ASKED: Final = {
    CLIENT_AUTH_NONE: ssl.CERT_NONE,
    CLIENT_AUTH_REQUESTED: ssl.CERT_OPTIONAL,
    CLIENT_AUTH_REQUIRED: ssl.CERT_REQUIRED,
}
_JAVAS_STORE: Final = (b"\xfe\xed\xfe\xed", b"\x30\x82", b"\x30\x83")  # JKS, PKCS12


class TlsConfigError(Exception):
    """Why a listener cannot have TLS as it is set, in one line that names the setting."""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """Named as the settings are, without `ssl.`; empty: not given."""

    keystore_location: str = ""
    keystore_certificate_chain: str = ""
    keystore_key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_location: str = ""
    truststore_certificates: str = ""
    client_auth: str = CLIENT_AUTH_NONE
    enabled_protocols: tuple[str, ...] = tuple(TLS_VERSIONS)

    def load(self) -> tuple[ssl.SSLContext, ServerCertificate]:
        """How connections are secured, and what clients will see, of one reading of the files. TlsError."""
        chain, key, where = self._keystore()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            load_certificate(context, chain, key, self.key_password)
            shown = inspect_certificate(chain, key, self.key_password)
        except InvalidCertificate as reason:
            raise TlsConfigError(f"{where} {reason}") from None
        context.options |= ssl.OP_NO_RENEGOTIATION
        versions = [TLS_VERSIONS[name] for name in self.enabled_protocols or TLS_VERSIONS]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        if self.client_auth != CLIENT_AUTH_NONE:
            self._trust(context)
        return context, shown

    @property
    def keystore_setting(self) -> str:
        """Where the certificate comes from, by the setting that says so."""
        if self.keystore_location:
            return f"ssl.keystore.location={self.keystore_location}"
        return "ssl.keystore.certificate.chain"

    def _keystore(self) -> tuple[str, str, str]:
        """Chain, key, and the setting they are from, for people."""
        inline = bool(self.keystore_certificate_chain or self.keystore_key)
        if self.keystore_location:
            if inline:
                raise TlsConfigError(
                    "ssl.keystore.location and ssl.keystore.certificate.chain are both given; allowed: one of them"
                )
            text = _text_of("ssl.keystore.location", self.keystore_location)
            return text, text, self.keystore_setting
        if not inline:
            raise TlsConfigError(
                "there is neither ssl.keystore.location nor ssl.keystore.certificate.chain with ssl.keystore.key: a server needs a certificate"
            )
        if not (self.keystore_certificate_chain and self.keystore_key):
            raise TlsConfigError("ssl.keystore.certificate.chain and ssl.keystore.key go together")
        where = "ssl.keystore.certificate.chain with ssl.keystore.key"
        return self.keystore_certificate_chain, self.keystore_key, where

    def _trust(self, context: ssl.SSLContext) -> None:
        if self.truststore_location:
            where = f"ssl.truststore.location={self.truststore_location}"
            text = _text_of("ssl.truststore.location", self.truststore_location)
        else:
            where, text = "ssl.truststore.certificates", self.truststore_certificates
        if not text:
            raise TlsConfigError(
                f"ssl.client.auth={self.client_auth} needs ssl.truststore.location or ssl.truststore.certificates: who may sign certificates of clients"
            )
        trusted = pem.find_certificates(text)
        if not trusted:
            raise TlsConfigError(f"{where} has no certificate in PEM (-----BEGIN CERTIFICATE-----)")
        try:
            context.load_verify_locations(cadata="\n".join(trusted))
        except ssl.SSLError as reason:
            raise TlsConfigError(f"{where} cannot be read: {reason.reason or reason}") from None
        context.verify_flags |= (
            ssl.VERIFY_X509_PARTIAL_CHAIN
        )  # as in Java, each of them is an anchor, also one that another authority signed
        context.verify_mode = _ASKED[self.client_auth]


def _text_of(setting: str, path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (pathlib would be a tenth of a broker's start)
            content = file.read()
    except OSError as reason:
        raise TlsConfigError(f"{setting}={path}: {(reason.strerror or str(reason)).lower()}") from None
    if content.startswith(_JAVAS_STORE):
        raise TlsConfigError(f"{setting}={path} is a keystore of Java's (JKS or PKCS12); allowed: PEM")
    return content.decode(errors="replace")
