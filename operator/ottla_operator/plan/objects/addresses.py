"""Where clients reach brokers: what is advertised to them, from what Kubernetes has given so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.services import external_listeners, is_external
from ottla_operator.resources.cluster import Cluster, Listener

NODE: Final = "${env:HOST_IP}"
"""The broker puts the address of its own node here."""


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """What a Service has been given. `node_port`: of its first port. `host`: of its load balancer."""

    node_port: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Addresses:
    """By the names of Services."""

    by_service: Mapping[str, ServiceAddress] = field(default_factory=dict)

    def of(self, service: str) -> ServiceAddress:
        return self.by_service.get(service, ServiceAddress())


def advertised_address(cluster: Cluster, listener: Listener, broker: int, addresses: Addresses) -> str | None:
    """host:port that clients of a listener outside are told for one broker; None while Kubernetes has not given it."""
    reached = addresses.of(names.broker_service(cluster, listener, broker))
    own = listener.advertised_host.replace("{id}", str(broker)) if listener.advertised_host else None
    if listener.type == "NodePort":
        return f"{own or NODE}:{reached.node_port}" if reached.node_port else None
    host = own or reached.host
    return f"{_bracketed(host)}:{listener.port}" if host else None


def services_without_address(cluster: Cluster, broker: int, addresses: Addresses) -> list[str]:
    """Services that a broker waits for, before it can tell clients where it is."""
    return [
        names.broker_service(cluster, it, broker)
        for it in external_listeners(cluster)
        if advertised_address(cluster, it, broker, addresses) is None
    ]


def bootstrap_addresses(cluster: Cluster, addresses: Addresses) -> dict[str, str]:
    """Listener → the address that clients begin with, of those that are known. That of a node port lacks a host that we could name for sure:
    any node's will do, and `<node>` says so."""
    found: dict[str, str] = {}
    for it in cluster.listeners:
        reached = addresses.of(names.bootstrap_service(cluster, it))
        if not is_external(it):
            found[it.name] = f"{names.service_host(cluster, names.bootstrap_service(cluster, it))}:{it.port}"
        elif it.type == "NodePort" and reached.node_port:
            found[it.name] = f"<node>:{reached.node_port}"
        elif it.type == "LoadBalancer" and reached.host:
            found[it.name] = f"{_bracketed(reached.host)}:{it.port}"
    return found


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
