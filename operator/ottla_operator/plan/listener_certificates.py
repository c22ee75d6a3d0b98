"""The certificates of a Cluster's listeners with tls: true: read from a Secret, checked, and given
to brokers. The Secret is that of `tls.secretRef`, or one that the operator keeps (`tls.issuer`).

A Secret of type kubernetes.io/tls: `tls.crt` (the brokers' certificate, then its chain), `tls.key`,
and `ca.crt` where listeners require client certificates or brokers use TLS among themselves.
Brokers read them again when they change, so a renewed certificate restarts none. An annotation of
their pods has the `digest` of those that were found usable last.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.listener_tls import InvalidCertificate, inspect_certificate
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable, read_secret_value
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_tls import CertificateStatus
from ottla_operator.resources.common import format_time

CHAIN: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITIES: Final = "ca.crt"


@dataclass(frozen=True, slots=True)
class ListenerCertificates:
    """`authorities`: of clients' and other brokers' certificates; empty if none are needed.
    `digest`: changes with the certificates; the key cannot change without them, and the digest
    contains nothing of it."""

    secret: str
    chain: str
    key: str = field(repr=False)
    authorities: str
    digest: str


def has_tls(cluster: Cluster) -> bool:
    tls = cluster.spec.tls
    return tls is not None and (bool(tls.inter_broker) or any(it.tls for it in cluster.listeners))


def has_authority(cluster: Cluster) -> bool:
    """True if the operator keeps a certificate authority for the Cluster."""
    return cluster.spec.tls is not None and cluster.spec.tls.issuer is not None


def issues_certificates(cluster: Cluster) -> bool:
    """True if brokers have certificates of the Cluster's own authority."""
    return has_tls(cluster) and has_authority(cluster)


def secret_name(cluster: Cluster) -> str:
    """Name of the Secret that brokers need; empty if no listener, the inter-broker one included,
    has TLS.
    """
    tls = cluster.spec.tls
    if tls is None or not has_tls(cluster):
        return ""
    return tls.secret_ref.name if tls.secret_ref is not None else f"{cluster.name}-certificates"


def required_keys(cluster: Cluster) -> tuple[str, ...]:
    """Keys that the Secret must have."""
    return (CHAIN, KEY, AUTHORITIES) if _needs_authorities(cluster) else (CHAIN, KEY)


def _needs_authorities(cluster: Cluster) -> bool:
    """True if brokers verify certificates of clients or of other brokers."""
    return requires_client_certificates(cluster) or (
        cluster.spec.tls is not None and bool(cluster.spec.tls.inter_broker)
    )


def requires_client_certificates(cluster: Cluster) -> bool:
    return any(it.authentication == "TLS" for it in cluster.listeners)


def read_certificates(cluster: Cluster, secrets: Mapping[str, ObservedSecret]) -> ListenerCertificates | None:
    """The certificates of `tls.secretRef`; None for a Cluster without it, or without TLS.
    `secrets`: those that exist, by name. Raises SecretUnusable.
    """
    if not (name := secret_name(cluster)) or has_authority(cluster):
        return None
    values = {key: read_secret_value(secrets, name, key, "spec.tls") for key in required_keys(cluster)}
    chain, authorities = values[CHAIN], values.get(AUTHORITIES, "")
    digest = hashlib.sha256(f"{chain}\0{authorities}".encode()).hexdigest()[:10]
    return ListenerCertificates(name, chain, values[KEY], authorities, digest)


def check_certificates(certificates: ListenerCertificates, now: float | None) -> CertificateStatus:
    """Returns the state of the certificate that clients see. Raises SecretUnusable if brokers could
    not start with it, or clients would reject it. `now`: seconds since 1970; None for certificates
    that brokers have already, with which they may restart even if these have expired.
    """
    try:
        shown = inspect_certificate(certificates.chain, certificates.key)
    except InvalidCertificate as reason:
        raise SecretUnusable(f"spec.tls: Secret {certificates.secret}: {CHAIN} with {KEY} {reason}") from None
    if now is not None and (why := shown.validity_problem(now)):
        raise SecretUnusable(f"spec.tls: Secret {certificates.secret}: clients would reject {CHAIN}: {why}")
    return CertificateStatus(not_after=format_time(shown.not_after))


def check_certificates_between_brokers(certificates: ListenerCertificates, host: str) -> None:
    """Raises SecretUnusable if brokers would reject each other's certificate. `host`: by which
    another broker connects to one.
    """
    where = f"spec.tls.interBroker: Secret {certificates.secret}"
    try:
        names = inspect_certificate(certificates.chain, certificates.key, trusted=certificates.authorities).names
    except InvalidCertificate as reason:
        raise SecretUnusable(
            f"{where}: brokers would reject each other: {AUTHORITIES} does not verify {CHAIN}, which {reason}"
        ) from None
    wildcard = f"*.{host.partition('.')[2]}"
    if not {host, wildcard} & {*names}:
        present = ", ".join(names) or "none"
        raise SecretUnusable(
            f"{where}: brokers would reject each other: {CHAIN} has no name {wildcard}; it has: {present}"
        )


def client_auth_settings(cluster: Cluster) -> dict[str, str]:
    """Brokers' settings of the listeners that require client certificates."""
    return {
        f"listener.name.{it.name}.ssl.client.auth": "required" for it in cluster.listeners if it.authentication == "TLS"
    }
