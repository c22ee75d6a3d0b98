"""The certificate of a User with authentication TLS, which its Cluster's own authority issues.

`x509` is imported where it is used: its library takes 9 MiB that other users do not need.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_broker.config import SSL_PRINCIPAL_MAPPING_RULES
from ottla_broker.security.principal_mapping import NoMatchingRule, PrincipalMapper
from ottla_broker.wire.pem import find_certificates
from ottla_operator.certificates.internal_authority import authority_secret_name, read_authorities, trust_bundle
from ottla_operator.plan.certificate_renewal import (
    DesiredCertificate,
    Validity,
    choose_issuer,
    new_validity,
    renewal_reason,
    trusted_authorities,
)
from ottla_operator.plan.listener_certificates import AUTHORITIES, has_authority
from ottla_operator.plan.source_credentials import ObservedSecret
from ottla_operator.plan.user_secret import CERTIFICATE, KEY, KEYSTORE, STORE_PASSWORD, TRUSTSTORE
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.user import User


class NoPrincipal(Exception):
    """The reason why a user with TLS has no principal on the brokers."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """`certificate`, `key`, `authorities`: PEM. `issue_reason`: why it was issued now; empty if it
    had been issued before.
    """

    certificate: str
    key: str = field(repr=False)
    authorities: str
    validity: Validity
    issue_reason: str = ""


def principal_name(user: User, cluster: Cluster) -> str:
    """The name by which brokers know a user. Raises NoPrincipal."""
    if user.spec.authentication.type != "TLS" or not has_authority(cluster):
        return user.user_name
    from ottla_operator.certificates import x509

    rules = cluster.config.get(SSL_PRINCIPAL_MAPPING_RULES.name, "DEFAULT")
    try:
        return PrincipalMapper.parse(rules).map_subject(certificate_subject(user))
    except (x509.InvalidSubject, NoMatchingRule, ValueError) as reason:
        raise NoPrincipal(f"spec.userName: {reason}") from None


def certificate_subject(user: User) -> str:
    """`CN=name`, or the user name itself if it is a subject. Raises InvalidSubject."""
    from ottla_operator.certificates import x509

    if "CN=" not in user.user_name:
        return x509.subject_of_common_name(user.user_name)
    return str(x509.parse_subject(user.user_name).rfc4514_string())


def maintain_client_certificate(
    user: User,
    cluster: Cluster,
    existing: Mapping[str, str | bytes],
    secrets: Mapping[str, ObservedSecret],
    now: float,
) -> ClientCertificate | None:
    """The certificate in the user's Secret, or a new one if that is due. None before the Cluster's
    authority exists. `existing`: the data of the user's Secret. `secrets`: among them that of
    the authority. Raises SecretUnusable, and InvalidSubject for a name that `principal_name`
    refuses.
    """
    from ottla_operator.certificates import x509

    assert cluster.spec.tls is not None
    stored = secrets.get(authority_secret_name(cluster))
    trusted = trusted_authorities(read_authorities(cluster, stored.values), now) if stored else []
    if not trusted:
        return None
    issuer, subject = choose_issuer(trusted, now), certificate_subject(user)
    certificate, key = _text(existing, CERTIFICATE), _text(existing, KEY)
    current = x509.read_certificate(certificate, key, trusted)
    if reason := renewal_reason(current, DesiredCertificate(subject=subject), issuer, now):
        validity = new_validity(cluster.spec.tls.certificate_validity_s, now, issuer=issuer)
        certificate, key = x509.issue_client_certificate(issuer, subject, validity)
        return ClientCertificate(certificate, key, trust_bundle(trusted), validity, reason)
    assert current is not None
    return ClientCertificate(certificate, key, trust_bundle(trusted), current.validity)


def make_stores(
    certificate: ClientCertificate, existing: Mapping[str, str | bytes], password: str
) -> tuple[bytes, bytes]:
    """Keystore and truststore in PKCS #12. Existing ones with the same content are returned as they
    are, because encrypting them again would change the bytes. `password`: that of both stores.
    """
    keystore, truststore = existing.get(KEYSTORE), existing.get(TRUSTSTORE)
    has_same = [existing.get(it) for it in (CERTIFICATE, KEY, AUTHORITIES, STORE_PASSWORD)] == [
        certificate.certificate,
        certificate.key,
        certificate.authorities,
        password,
    ]
    if has_same and isinstance(keystore, bytes) and isinstance(truststore, bytes):
        return keystore, truststore
    from ottla_operator.certificates import x509

    trusted = find_certificates(certificate.authorities)
    return (
        x509.create_keystore(certificate.certificate, certificate.key, trusted, password),
        x509.create_truststore(trusted, password),
    )


def _text(contents: Mapping[str, str | bytes], key: str) -> str:
    value = contents.get(key, "")
    return value if isinstance(value, str) else ""
