"""A Cluster's own certificate authority, and the brokers' certificate that it issues.

The functions take the stored data of two Secrets and return the data to store: that of the
authority, which only the operator reads, and that of the brokers. `ottla up` has files instead.

`x509` is imported where it is used: its library takes 9 MiB that other clusters do not need.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan.certificate_renewal import (
    Authority,
    DesiredCertificate,
    IssuedCertificate,
    choose_issuer,
    needs_authority,
    new_validity,
    renewal_reason,
    trusted_authorities,
)
from ottla_operator.plan.listener_certificates import AUTHORITIES, CHAIN, KEY
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_tls import AuthorityStatus, CertificateStatus, Tls
from ottla_operator.resources.common import format_time

_FILE: Final = re.compile(r"ca-([1-9][0-9]*)\.crt")


@dataclass(frozen=True, slots=True)
class ClusterCertificates:
    """`authority`, `brokers`: data of the Secrets. `changes`: what was issued and what has expired,
    for events.
    """

    authority: Mapping[str, str] = field(repr=False)
    brokers: Mapping[str, str] = field(repr=False)
    status: CertificateStatus
    changes: tuple[str, ...] = ()


def authority_secret_name(cluster: Cluster) -> str:
    return f"{cluster.name}-ca"


def maintain_certificates(
    cluster: Cluster,
    authority: Mapping[str, str],
    brokers: Mapping[str, str],
    names: Collection[str],
    now: float,
) -> ClusterCertificates:
    """Creates missing certificates and renews those that are due. `authority`, `brokers`: data of
    the Secrets; empty if there is none. `names`: DNS names and IP addresses of the brokers. Raises
    SecretUnusable.
    """
    from ottla_operator.certificates import x509

    tls = cluster.spec.tls
    assert tls is not None
    authorities, changes = _maintain_authorities(cluster, tls, read_authorities(cluster, authority), now)
    trusted, issuer = trusted_authorities(authorities, now), choose_issuer(authorities, now)
    chain, key = brokers.get(CHAIN, ""), brokers.get(KEY, "")
    current = x509.read_certificate(chain, key, trusted)
    desired = DesiredCertificate(_normalize(names))
    if reason := renewal_reason(current, desired, issuer, now):
        validity = new_validity(tls.certificate_validity_s, now, issuer=issuer)
        chain, key = x509.issue_server_certificate(issuer, desired.names, validity)
        current = IssuedCertificate(validity, issuer.number, desired.names)
        changes.append(f"brokers' certificate issued, valid until {format_time(validity.not_after)}: {reason}")
    assert current is not None
    return ClusterCertificates(
        {f"ca-{it.number}.{suffix}": text for it in trusted for suffix, text in _files(it)},
        {CHAIN: chain, KEY: key, AUTHORITIES: trust_bundle(trusted)},
        CertificateStatus(
            not_after=format_time(current.validity.not_after),
            renewal_time=format_time(current.validity.renewal_time),
            authorities=[
                AuthorityStatus(number=it.number, not_after=format_time(it.validity.not_after)) for it in trusted
            ],
        ),
        tuple(changes),
    )


def read_authorities(cluster: Cluster, data: Mapping[str, str]) -> list[Authority]:
    """The authorities of a Secret, also expired ones. Raises SecretUnusable."""
    from ottla_operator.certificates import x509

    found = []
    for name in data:
        if (match := _FILE.fullmatch(name)) is None:
            continue
        try:
            found.append(x509.read_authority(int(match[1]), data[name], data.get(f"ca-{match[1]}.key", "")))
        except x509.InvalidPem as reason:
            raise SecretUnusable(
                f"spec.tls: Secret {authority_secret_name(cluster)}: {name} {reason}; restore it, or delete the "
                "Secret to have another authority, which clients do not trust yet"
            ) from None
    return found


def trust_bundle(authorities: Collection[Authority]) -> str:
    """Certificates that clients and brokers trust, one after the other."""
    return "".join(f"{it.certificate.strip()}\n" for it in authorities)


def _maintain_authorities(
    cluster: Cluster, tls: Tls, existing: list[Authority], now: float
) -> tuple[list[Authority], list[str]]:
    """The authorities, with a new one if that is due, and the changes as text."""
    from ottla_operator.certificates import x509

    changes = [
        f"authority {it.number} has expired and is no longer trusted" for it in existing if now >= it.validity.not_after
    ]
    if not needs_authority(existing, now):
        return existing, changes
    number = max((it.number for it in existing), default=0) + 1
    validity = new_validity(tls.authority_validity_s, now)
    changes.append(f"authority {number} created, trusted until {format_time(validity.not_after)}")
    return [*existing, x509.create_authority(cluster.name, number, validity)], changes


def _normalize(names: Collection[str]) -> frozenset[str]:
    """Names as certificates have them. Raises SecretUnusable."""
    from ottla_operator.certificates import x509

    try:
        return frozenset(x509.normalize_name(it) for it in names)
    except x509.InvalidName as reason:
        raise SecretUnusable(f"spec.listeners: no certificate can contain {reason}") from None


def _files(authority: Authority) -> tuple[tuple[str, str], ...]:
    return ("crt", authority.certificate), ("key", authority.key)
