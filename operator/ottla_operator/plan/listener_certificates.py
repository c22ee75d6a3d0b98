"""The certificates of a Cluster's listeners with tls: true: what of its Secret brokers need, and what they are told of it.

A Secret of type kubernetes.io/tls: `tls.crt` (the brokers' certificate, then those that lead to the authority), `tls.key`, and for listeners whose clients show
certificates `ca.crt`. Brokers read them when they start, so that renewed ones are a roll: `digest` names which they have.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.listener_tls import InvalidCertificate, inspect_certificate
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.resources.cluster import Cluster

CHAIN: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITIES: Final = "ca.crt"


@dataclass(frozen=True, slots=True)
class ListenerCertificates:
    """`authorities`: who may sign certificates of clients; empty where none are asked for. `digest`: changes with the certificates; it tells nothing of the key,
    which cannot change without them."""

    secret: str
    chain: str
    key: str = field(repr=False)
    authorities: str
    digest: str


def secret_name(cluster: Cluster) -> str:
    """The name of the Secret that its listeners need; empty where none has TLS."""
    tls = cluster.spec.tls
    return tls.secret_ref.name if tls is not None and any(it.tls for it in cluster.listeners) else ""


def required_keys(cluster: Cluster) -> tuple[str, ...]:
    """What the Secret must have."""
    return (CHAIN, KEY, AUTHORITIES) if requires_client_certificates(cluster) else (CHAIN, KEY)


def requires_client_certificates(cluster: Cluster) -> bool:
    return any(it.authentication == "TLS" for it in cluster.listeners)


def read_certificates(cluster: Cluster, secrets: Mapping[str, ObservedSecret]) -> ListenerCertificates | None:
    """`secrets`: by name, those that are there. None for a Cluster without TLS. Unusable."""
    if not (name := secret_name(cluster)):
        return None
    if name not in secrets:
        raise SecretUnusable(f"spec.tls: there is no Secret {name}")
    values = secrets[name].values
    for key in required_keys(cluster):
        if not values.get(key):
            there = ", ".join(sorted(values)) or "nothing"
            raise SecretUnusable(f"spec.tls: Secret {name} has no {key}; it has: {there}")
    chain, authorities = values[CHAIN], values[AUTHORITIES] if requires_client_certificates(cluster) else ""
    digest = hashlib.sha256(f"{chain}\0{authorities}".encode()).hexdigest()[:10]
    return ListenerCertificates(name, chain, values[KEY], authorities, digest)


def check_certificates(found: ListenerCertificates, now: float | None) -> None:
    """Before any broker is started with them. `now`: seconds since 1970; None for those that brokers show already, whose time is not to keep them from being
    restarted. Unusable."""
    try:
        shown = inspect_certificate(found.chain, found.key)
    except InvalidCertificate as reason:
        raise SecretUnusable(f"spec.tls: Secret {found.secret}: {CHAIN} with {KEY} {reason}") from None
    if now is not None and (why := shown.validity_problem(now)):
        raise SecretUnusable(f"spec.tls: Secret {found.secret}: clients would refuse {CHAIN}: {why}")


def security_protocols(cluster: Cluster) -> dict[str, str]:
    """Security protocol by the name that brokers give a listener."""
    return {it.name.upper(): "SSL" if it.tls else "PLAINTEXT" for it in cluster.listeners}


def client_auth_settings(cluster: Cluster) -> dict[str, str]:
    """Brokers' settings of the listeners whose clients show certificates."""
    return {
        f"listener.name.{it.name}.ssl.client.auth": "required" for it in cluster.listeners if it.authentication == "TLS"
    }
