"""TLS on a Cluster's inter-broker listener (`tls.interBroker`), and its roll-out to running
brokers.

Brokers present the certificate of the Cluster's listeners, trust `ca.crt` of the same Secret, and
check that certificates name the broker that they connect to. The operator connects by addresses of
pods, so it checks the name of a broker instead.

As with logins (`inter_broker_login`), running brokers get TLS and lose it in two rolls: first it is
optional for all, so that each broker that starts can reach those that run.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum
from typing import Final

import msgspec

from ottla_broker.wire.client_security import ClientSecurity
from ottla_operator.resources.cluster import Cluster

OPTIONAL_SETTING: Final = "ssl.inter.broker.optional"


class InterBrokerTls(StrEnum):
    """OPTIONAL: brokers use TLS where others have it, and accept those that do not use it."""

    NONE = ""
    OPTIONAL = "Optional"
    REQUIRED = "Required"


def requires_inter_broker_tls(cluster: Cluster) -> bool:
    return cluster.spec.tls is not None and bool(cluster.spec.tls.inter_broker)


def plan_tls(cluster: Cluster, running: Collection[InterBrokerTls]) -> InterBrokerTls:
    """The TLS that brokers are started with next. `running`: TLS of the brokers that exist."""
    if requires_inter_broker_tls(cluster):
        return InterBrokerTls.OPTIONAL if InterBrokerTls.NONE in running else InterBrokerTls.REQUIRED
    return InterBrokerTls.OPTIONAL if InterBrokerTls.REQUIRED in running else InterBrokerTls.NONE


def keep_certificates(cluster: Cluster, stage: InterBrokerTls) -> Cluster:
    """The Cluster with the certificates that brokers need at this stage: while they lose TLS, the
    spec no longer asks for them.
    """
    if not stage or cluster.spec.tls is None or requires_inter_broker_tls(cluster):
        return cluster
    tls = msgspec.structs.replace(cluster.spec.tls, inter_broker=True)
    return msgspec.structs.replace(cluster, spec=msgspec.structs.replace(cluster.spec, tls=tls))


def with_tls(protocol: str, stage: InterBrokerTls) -> str:
    """The security protocol of the inter-broker listener. `protocol`: without TLS."""
    return protocol.replace("PLAINTEXT", "SSL") if stage else protocol


def tls_settings(stage: InterBrokerTls) -> dict[str, str]:
    """Further settings of brokers, besides protocol and certificates."""
    return {OPTIONAL_SETTING: "true"} if stage is InterBrokerTls.OPTIONAL else {}


def secure_operator(
    security: ClientSecurity, running: Collection[InterBrokerTls], authorities: str, server_name: str
) -> ClientSecurity:
    """Adds TLS to the operator's connections. `security`: without TLS. `running`: TLS of the
    brokers that it may connect to. `authorities`: those that brokers trust. `server_name`: that of
    a broker.
    """
    if not any(running):
        return security
    return replace(
        security,
        protocol=with_tls(security.protocol, InterBrokerTls.REQUIRED),
        trusted_certificates=authorities,
        server_name=server_name,
        is_tls_optional=InterBrokerTls.NONE in running,
    )
