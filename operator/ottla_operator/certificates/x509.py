"""X.509 certificates: issued and read, with the `cryptography` library.

Keys are those of the curve P-256, in PKCS #8, which Java, OpenSSL and Go read. What is issued
depends on random numbers and on the time that is passed in. No file is read or written.
"""

import datetime
import ipaddress
from collections.abc import Collection, Iterable
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla_operator.plan.certificate_renewal import Authority, IssuedCertificate, Validity

CLOCK_SKEW_S: Final = 300
"""Time between a certificate's not-before and its issue: clocks of clients may be behind."""
MAX_COMMON_NAME: Final = 64  # RFC 5280, ub-common-name


PRINCIPAL_ATTRIBUTES: Final = frozenset(
    {
        NameOID.COMMON_NAME,
        NameOID.COUNTRY_NAME,
        NameOID.LOCALITY_NAME,
        NameOID.STATE_OR_PROVINCE_NAME,
        NameOID.STREET_ADDRESS,
        NameOID.ORGANIZATION_NAME,
        NameOID.ORGANIZATIONAL_UNIT_NAME,
        NameOID.DOMAIN_COMPONENT,
        NameOID.USER_ID,
    }
)
"""Attributes that brokers write with a short name in a principal (RFC 2253)."""


class InvalidPem(Exception):
    """The PEM text cannot be used. The message continues a sentence about it ("it has no …") and
    contains nothing of a key.
    """


class InvalidName(Exception):
    """A text that is neither a DNS name nor an IP address."""


class InvalidSubject(Exception):
    """The reason why a text is not a subject of a certificate."""


def create_authority(name: str, number: int, validity: Validity) -> Authority:
    """A self-signed authority that signs no other authority. `name`: the beginning of its CN."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name[: MAX_COMMON_NAME - 12]} CA {number}")])
    builder = _builder(subject, subject, key.public_key(), validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    return Authority(number, validity, _pem(certificate), _key_pem(key))


def read_authority(number: int, certificate: str, key: str) -> Authority:
    """Raises InvalidPem."""
    found, private = _read_pair(certificate, key)
    if _public_key_der(private.public_key()) != _public_key_der(found.public_key()):
        raise InvalidPem("has a key that does not belong to its certificate")
    return Authority(number, _validity(found), certificate, key)


def issue_server_certificate(authority: Authority, names: Iterable[str], validity: Validity) -> tuple[str, str]:
    """(certificate, key) in PEM, for servers and for their connections to each other. `names`: DNS
    names and IP addresses.
    """
    ordered = sorted(names)
    common_name = next((it for it in ordered if len(it) <= MAX_COMMON_NAME), "ottla")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    extension = x509.SubjectAlternativeName([_general_name(it) for it in ordered])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _issue(authority, subject, validity, usages, extension)


def issue_client_certificate(authority: Authority, subject: str, validity: Validity) -> tuple[str, str]:
    """(certificate, key) in PEM. `subject`: as `parse_subject` reads it. Raises InvalidSubject."""
    return _issue(authority, parse_subject(subject), validity, [ExtendedKeyUsageOID.CLIENT_AUTH], None)


def read_certificate(certificate: str, key: str, authorities: Collection[Authority]) -> IssuedCertificate | None:
    """None if it cannot be read, or the key is that of another certificate."""
    try:
        found, private = _read_pair(certificate, key)
    except InvalidPem:
        return None
    if _public_key_der(private.public_key()) != _public_key_der(found.public_key()):
        return None
    issuer = next((it.number for it in authorities if _is_issued_by(found, it)), 0)
    return IssuedCertificate(_validity(found), issuer, _names(found), found.subject.rfc4514_string())


def parse_subject(text: str) -> x509.Name:
    """A subject as RFC 4514 and Kafka's principals write it. Raises InvalidSubject."""
    try:
        subject = x509.Name.from_rfc4514_string(text)
    except ValueError as reason:
        raise InvalidSubject(f"{text!r} is no subject such as CN=alice,O=example: {reason}") from None
    if not subject.get_attributes_for_oid(NameOID.COMMON_NAME):
        raise InvalidSubject(f"{text!r} has no CN, as in CN=alice,O=example")
    if unknown := [it.oid.dotted_string for it in subject if it.oid not in PRINCIPAL_ATTRIBUTES]:
        raise InvalidSubject(f"{text!r} has {unknown[0]}; allowed: CN, O, OU, C, L, ST, STREET, DC, UID")
    return subject


def subject_of_common_name(name: str) -> str:
    """The subject `CN=name` with what has a meaning in subjects escaped. Raises InvalidSubject."""
    size = len(name.encode())
    if not 0 < size <= MAX_COMMON_NAME:
        raise InvalidSubject(f"{name!r} has {size} bytes in UTF-8; a certificate's CN has 1 to {MAX_COMMON_NAME}")
    return str(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]).rfc4514_string())


def create_keystore(certificate: str, key: str, authorities: Iterable[str], password: str) -> bytes:
    """A PKCS #12 keystore, for clients that do not read PEM. `authorities`: PEM."""
    found, private = _read_pair(certificate, key)
    trusted = [x509.load_pem_x509_certificate(it.encode()) for it in authorities]
    encryption = serialization.BestAvailableEncryption(password.encode())
    return bytes(pkcs12.serialize_key_and_certificates(b"user", private, found, trusted, encryption))


def create_truststore(authorities: Iterable[str], password: str) -> bytes:
    """A PKCS #12 truststore that Java takes: its certificates are marked as trusted."""
    trusted = [
        pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(it.encode()), f"ca-{number}".encode())
        for number, it in enumerate(authorities, 1)
    ]
    return bytes(pkcs12.serialize_java_truststore(trusted, serialization.BestAvailableEncryption(password.encode())))


def _issue(
    authority: Authority,
    subject: x509.Name,
    validity: Validity,
    usages: list[x509.ObjectIdentifier],
    alternative_names: x509.SubjectAlternativeName | None,
) -> tuple[str, str]:
    issuer, issuer_key = _read_pair(authority.certificate, authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject, issuer.subject, key.public_key(), validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False
    )
    if alternative_names is not None:
        builder = builder.add_extension(alternative_names, critical=False)
    return _pem(builder.sign(issuer_key, hashes.SHA256())), _key_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(validity.not_before - CLOCK_SKEW_S))
        .not_valid_after(_time(validity.not_after))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read_pair(certificate: str, key: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Raises InvalidPem."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        raise InvalidPem("has no certificate in PEM (-----BEGIN CERTIFICATE-----)") from None
    try:
        return found, serialization.load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError):
        raise InvalidPem("has no private key in PEM (-----BEGIN PRIVATE KEY-----) that is not encrypted") from None


def _is_issued_by(certificate: x509.Certificate, authority: Authority) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _validity(certificate: x509.Certificate) -> Validity:
    return Validity(
        certificate.not_valid_before_utc.timestamp() + CLOCK_SKEW_S, certificate.not_valid_after_utc.timestamp()
    )


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset([*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def normalize_name(name: str) -> str:
    """A DNS name in lower case and IDNA, or an IP address, as certificates contain it. Raises
    InvalidName.
    """
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        try:
            return name.lower().encode("idna").decode()
        except UnicodeError:
            raise InvalidName(repr(name)) from None


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _pem(certificate: x509.Certificate) -> str:
    return str(certificate.public_bytes(serialization.Encoding.PEM).decode())


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return str(key.private_bytes(encoding, form, serialization.NoEncryption()).decode())


def _public_key_der(key: ec.EllipticCurvePublicKey) -> bytes:
    return bytes(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
