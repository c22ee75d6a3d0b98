"""The certificate and key that a server shows: loaded, and looked at before any client sees them."""

import ssl
from dataclasses import dataclass
from typing import Any, Final

from ottla_broker.wire import pem

_NO_CHECK_TIME: Final = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name


class InvalidCertificate(Exception):
    """Why they cannot be shown, in words that continue "it …"; nothing of a key is in them."""


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A certificate that a client would see. Times in seconds since 1970."""

    names: tuple[str, ...]
    not_before: float
    not_after: float

    def validity_problem(self, now: float) -> str:
        """Why clients will refuse it at this time; empty when they will not."""
        if now >= self.not_after:
            return f"it expired on {_day(self.not_after)}"
        return f"it is not valid before {_day(self.not_before)}" if now < self.not_before else ""


def load_certificate(context: ssl.SSLContext, chain: str, key: str, password: str = "") -> None:
    """`chain`, `key`: PEM, the server's own certificate first. BadCertificate."""
    if not pem.find_certificates(chain):
        raise InvalidCertificate("has no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    if not pem.has_key(key):
        raise InvalidCertificate("has no private key in PEM (-----BEGIN PRIVATE KEY-----)")

    def password_of() -> str:
        if not password:
            raise InvalidCertificate("has an encrypted key, and no password is given for it")
        return password

    try:
        with pem.open_as_file("\n".join(pem.find_certificates(chain))) as certificates, pem.open_as_file(key) as keys:
            context.load_cert_chain(certificates, keys, password_of)
    except ssl.SSLError as reason:
        if reason.reason is None and pem.has_encrypted_key(key):
            raise InvalidCertificate("has an encrypted key, and the password given does not open it") from None
        raise InvalidCertificate(_said(reason)) from None


def inspect_certificate(chain: str, key: str, password: str = "") -> ServerCertificate:
    """What a client would see, by a handshake in memory: whatever keeps a handshake from succeeding is told here. BadCertificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(server, chain, key, password)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    try:
        client.load_verify_locations(cadata=pem.find_certificates(chain)[0])
        found = _met(server, client)
    except ssl.SSLCertVerificationError as reason:
        raise InvalidCertificate(f"is no certificate for a server: {reason.verify_message}") from None
    except ssl.SSLError as reason:
        raise InvalidCertificate(_said(reason)) from None
    return ServerCertificate(
        tuple(name for _, name in found.get("subjectAltName", ())),
        ssl.cert_time_to_seconds(found["notBefore"]),
        ssl.cert_time_to_seconds(found["notAfter"]),
    )


def _met(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(back, there)
    other = server.wrap_bio(there, back, server_side=True)
    waiting = [one, other]
    while waiting:
        try:
            waiting[0].do_handshake()
        except ssl.SSLWantReadError:
            waiting.reverse()
        else:
            del waiting[0]
    return dict(one.getpeercert() or {})


def _said(reason: ssl.SSLError) -> str:
    match reason.reason:
        case "KEY_VALUES_MISMATCH":
            return "has a key that does not belong to its certificate"
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL":
            return "has a key that is too short to be safe"
    return f"cannot be read: {(reason.reason or str(reason)).lower().replace('_', ' ')}"


def _day(seconds: float) -> str:
    from datetime import UTC, datetime  # only where something is wrong

    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
