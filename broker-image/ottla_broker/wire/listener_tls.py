"""TLS of a listener: Kafka's ssl.* settings with keys and certificates in PEM (KIP-651), checked
before a client connects.
"""

import ssl
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ottla_broker.wire import pem
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.digests import compute_hash

CLIENT_AUTH_NONE: Final = "none"
CLIENT_AUTH_REQUESTED: Final = "requested"
CLIENT_AUTH_REQUIRED: Final = "required"
TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {
    CLIENT_AUTH_NONE: ssl.CERT_NONE,
    CLIENT_AUTH_REQUESTED: ssl.CERT_OPTIONAL,
    CLIENT_AUTH_REQUIRED: ssl.CERT_REQUIRED,
}
_JAVA_KEYSTORES: Final = (b"\xfe\xed\xfe\xed", b"\x30\x82", b"\x30\x83")  # first bytes of JKS and PKCS12
_NO_CHECK_TIME: Final = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name


class TlsConfigError(Exception):
    """The reason why TLS settings of a listener cannot be used, in one line with the setting."""


class InvalidCertificate(Exception):
    """The certificate and key cannot be used. The message continues a sentence about them ("has no
    certificate …", "cannot be read: …") and contains nothing of the key.
    """


class ServerCertificate(msgspec.Struct, frozen=True):
    """The properties of a certificate that clients see. `subject`: as text, such as
    organizationName=example,commonName=alice. Times are seconds since 1970.
    """

    names: tuple[str, ...]
    not_before: float
    not_after: float
    subject: str = ""

    def validity_problem(self, now_s: float) -> str:
        """The reason why clients reject the certificate at this time; empty if they do not."""
        if now_s >= self.not_after:
            return f"it expired on {_format_time(self.not_after)}"
        return f"it is not valid before {_format_time(self.not_before)}" if now_s < self.not_before else ""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """Fields are named as the settings without `ssl.`; an empty field is not set."""

    keystore_location: str = ""
    keystore_certificate_chain: str = ""
    keystore_key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_location: str = ""
    truststore_certificates: str = ""
    client_auth: str = CLIENT_AUTH_NONE
    enabled_protocols: tuple[str, ...] = tuple(TLS_VERSIONS)

    def load(self) -> tuple[ssl.SSLContext, ServerCertificate]:
        """Reads the files once and returns the context for connections and the certificate.

        Raises TlsConfigError.
        """
        chain, key, setting = self._read_keystore()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            load_certificate(context, chain, key, self.key_password)
            certificate = inspect_certificate(chain, key, self.key_password)
        except InvalidCertificate as reason:
            raise TlsConfigError(f"{setting} {reason}") from None
        context.options |= ssl.OP_NO_RENEGOTIATION
        versions = [TLS_VERSIONS[name] for name in self.enabled_protocols or TLS_VERSIONS]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        if self.client_auth != CLIENT_AUTH_NONE:
            self._load_truststore(context)
        return context, certificate

    def fingerprint(self) -> bytes:
        """Changes with the contents of the files and of the other settings with PEM.

        Raises TlsConfigError.
        """
        chain, key, _ = self._read_keystore()
        trusted, _ = self._read_truststore()
        return compute_hash("sha256", "\0".join((chain, key, trusted)).encode())

    @property
    def keystore_setting(self) -> str:
        """The setting that the certificate comes from, with its value if that is a path."""
        if self.keystore_location:
            return f"ssl.keystore.location={self.keystore_location}"
        return "ssl.keystore.certificate.chain"

    def _read_keystore(self) -> tuple[str, str, str]:
        """Chain, key, and the setting they come from, for error messages."""
        is_inline = bool(self.keystore_certificate_chain or self.keystore_key)
        if self.keystore_location:
            if is_inline:
                raise TlsConfigError("set either ssl.keystore.location or ssl.keystore.certificate.chain, not both")
            text = _read_pem("ssl.keystore.location", self.keystore_location)
            return text, text, self.keystore_setting
        if not is_inline:
            raise TlsConfigError(
                "a server needs a certificate: set ssl.keystore.location, or ssl.keystore.certificate.chain and"
                " ssl.keystore.key"
            )
        if not (self.keystore_certificate_chain and self.keystore_key):
            raise TlsConfigError("ssl.keystore.certificate.chain and ssl.keystore.key must be set together")
        setting = "ssl.keystore.certificate.chain with ssl.keystore.key"
        return self.keystore_certificate_chain, self.keystore_key, setting

    def secure_client(self, security: ClientSecurity, *, verifies_hostname: bool) -> ClientSecurity:
        """`security` for a client that presents the keystore's certificate and trusts the
        truststore's authorities, or the system's without one.

        Raises TlsConfigError.
        """
        chain, key, setting = self._read_keystore()
        trusted, _ = self._read_truststore()
        secured = replace(
            security,
            trusted_certificates="\n".join(pem.find_certificates(trusted)),
            certificate_chain="\n".join(pem.find_certificates(chain)),
            key=pem.find_key(key),
            key_password=self.key_password,
            verifies_hostname=verifies_hostname,
        )
        try:
            secured.ssl_context()
        except (ssl.SSLError, ValueError) as reason:
            raise TlsConfigError(f"{setting} or ssl.truststore.* cannot be used: {reason}") from None
        return secured

    @property
    def has_truststore(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)

    def check_trusted_by(self, other: "ListenerTls") -> None:
        """Raises TlsConfigError if the authorities in the truststore of `other` do not verify this
        certificate. Without a truststore there is nothing to check."""
        trusted, trusted_setting = other._read_truststore()
        if not trusted:
            return
        chain, key, setting = self._read_keystore()
        try:
            inspect_certificate(chain, key, self.key_password, trusted=trusted)
        except InvalidCertificate as reason:
            raise TlsConfigError(f"{setting} is not trusted by {trusted_setting}: it {reason}") from None

    def _read_truststore(self) -> tuple[str, str]:
        """Certificates, empty without any, and the setting they come from."""
        if self.truststore_location:
            text = _read_pem("ssl.truststore.location", self.truststore_location)
            return text, f"ssl.truststore.location={self.truststore_location}"
        return self.truststore_certificates, "ssl.truststore.certificates"

    def _load_truststore(self, context: ssl.SSLContext) -> None:
        text, setting = self._read_truststore()
        if not text:
            raise TlsConfigError(
                f"ssl.client.auth={self.client_auth} needs ssl.truststore.location or ssl.truststore.certificates: the"
                " authorities that sign certificates of clients"
            )
        trusted = pem.find_certificates(text)
        if not trusted:
            raise TlsConfigError(f"{setting} has no certificate in PEM (-----BEGIN CERTIFICATE-----)")
        try:
            context.load_verify_locations(cadata="\n".join(trusted))
        except ssl.SSLError as reason:
            raise TlsConfigError(f"{setting} cannot be read: {reason.reason or reason}") from None
        # As in Java, each of them is a trust anchor, also one that another authority signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_mode = _VERIFY_MODES[self.client_auth]


def _read_pem(setting: str, path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (importing pathlib would take a tenth of a broker's start)
            content = file.read()
    except OSError as reason:
        raise TlsConfigError(f"{setting}={path}: {(reason.strerror or str(reason)).lower()}") from None
    if content.startswith(_JAVA_KEYSTORES):
        raise TlsConfigError(f"{setting}={path} is a Java keystore (JKS or PKCS12); allowed: PEM")
    return content.decode(errors="replace")


def load_certificate(context: ssl.SSLContext, chain: str, key: str, password: str = "") -> None:
    """Loads a PEM chain, the server's own certificate first, and its key.

    Raises InvalidCertificate.
    """
    certificates = pem.find_certificates(chain)
    if not certificates:
        raise InvalidCertificate("has no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    if not pem.has_key(key):
        raise InvalidCertificate("has no private key in PEM (-----BEGIN PRIVATE KEY-----)")

    def read_password() -> str:
        if not password:
            raise InvalidCertificate("has an encrypted key, and no password is set for it")
        return password

    try:
        with pem.open_as_file("\n".join(certificates)) as chain_path, pem.open_as_file(key) as key_path:
            context.load_cert_chain(chain_path, key_path, read_password)
    except ssl.SSLError as reason:
        if reason.reason is None and pem.has_encrypted_key(key):
            raise InvalidCertificate("has an encrypted key, and the password does not decrypt it") from None
        raise InvalidCertificate(_describe_load_error(reason)) from None


def inspect_certificate(chain: str, key: str, password: str = "", *, trusted: str = "") -> ServerCertificate:
    """The properties of the first certificate of a chain. They are read in a TLS handshake in
    memory, which fails for a certificate that clients cannot accept at any time. Its dates are not
    checked.

    `trusted`: certificates of authorities that must verify it; empty: it is trusted itself. Raises
    InvalidCertificate.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(server, chain, key, password)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    try:
        anchors = pem.find_certificates(trusted) if trusted else pem.find_certificates(chain)[:1]
        client.load_verify_locations(cadata="\n".join(anchors))
        certificate = _peer_certificate(server, client)
    except ssl.SSLCertVerificationError as reason:
        raise InvalidCertificate(f"is not accepted as a server certificate: {reason.verify_message}") from None
    except ssl.SSLError as reason:
        raise InvalidCertificate(_describe_load_error(reason)) from None
    return ServerCertificate(
        tuple(name for _, name in certificate.get("subjectAltName", ())),
        ssl.cert_time_to_seconds(certificate["notBefore"]),
        ssl.cert_time_to_seconds(certificate["notAfter"]),
        ",".join(f"{key}={value}" for part in certificate.get("subject", ()) for key, value in part),
    )


def _peer_certificate(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server)
    unfinished = [client_side, server.wrap_bio(to_server, to_client, server_side=True)]
    while unfinished:
        try:
            unfinished[0].do_handshake()
        except ssl.SSLWantReadError:
            unfinished.reverse()
        else:
            del unfinished[0]
    return dict(client_side.getpeercert() or {})


def _describe_load_error(reason: ssl.SSLError) -> str:
    match reason.reason:
        case "KEY_VALUES_MISMATCH":
            return "has a key that does not belong to its certificate"
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL":
            return "has a key that is too short to be safe"
    return f"cannot be read: {(reason.reason or str(reason)).lower().replace('_', ' ')}"


def _format_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
