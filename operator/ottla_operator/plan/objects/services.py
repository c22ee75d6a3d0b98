"""Services of a Cluster, and the addresses by which clients reach brokers through them.

A headless Service gives each broker a name. Each listener has a bootstrap Service, and each broker
has one for every listener with clients outside the Kubernetes cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_listener import Listener
from ottla_operator.resources.model import Json

NODE_ADDRESS: Final = "${env:HOST_IP}"
"""The broker replaces this by the address of its node."""


def is_external(listener: Listener) -> bool:
    """True if clients are outside the Kubernetes cluster."""
    return listener.type in ("NodePort", "LoadBalancer")


def external_listeners(cluster: Cluster) -> list[Listener]:
    return [it for it in cluster.listeners if is_external(it)]


def services(cluster: Cluster, brokers: Iterable[int]) -> list[Json]:
    """`brokers`: ids of brokers that have a pod or will get one."""
    ids = list(brokers)
    return [
        _headless_service(cluster),
        *(_bootstrap_service(cluster, it) for it in cluster.listeners),
        *_registry_services(cluster),
        *(_broker_service(cluster, it, broker) for it in external_listeners(cluster) for broker in ids),
    ]


def _headless_service(cluster: Cluster) -> Json:
    """Publishes brokers that are not ready, because they need each other to become ready."""
    ports = [
        (names.BROKERS_PORT, names.brokers_port(cluster)),
        (names.HTTP_PORT, names.http_port(cluster)),
        *((it.name, it.port) for it in cluster.listeners),
        *_registry_ports(cluster),
    ]
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": names.selector(cluster),
        "ports": [_port(name, port) for name, port in ports],
    }
    return _service(cluster, names.headless_service(cluster), spec)


def _registry_ports(cluster: Cluster) -> list[tuple[str, int]]:
    port = cluster.schema_registry_port
    return [] if port is None else [(names.REGISTRY_PORT, port)]


def _registry_services(cluster: Cluster) -> list[Json]:
    """Reaches the schema registry of any broker that is ready."""
    return [
        _service(
            cluster,
            names.registry_service(cluster),
            {"type": "ClusterIP", "selector": names.selector(cluster), "ports": [_port(name, port)]},
        )
        for name, port in _registry_ports(cluster)
    ]


def _bootstrap_service(cluster: Cluster, listener: Listener) -> Json:
    port = _port(listener.name, listener.port)
    if listener.node_port is not None:
        port["nodePort"] = listener.node_port
    spec = {"type": _type(listener), "selector": names.selector(cluster), "ports": [port]}
    return _service(cluster, names.bootstrap_service(cluster, listener), spec)


def _broker_service(cluster: Cluster, listener: Listener, broker: int) -> Json:
    """A Service of one broker. With NodePort and no `advertisedHost`, clients get the address of
    the broker's own node, so nodes need not forward to others (`externalTrafficPolicy: Local`).
    """
    spec: Json = {
        "type": _type(listener),
        "publishNotReadyAddresses": True,
        "selector": {**names.selector(cluster), names.POD_NAME_LABEL: names.pod(cluster, broker)},
        "ports": [_port(listener.name, listener.port)],
    }
    if listener.type == "NodePort" and listener.advertised_host is None:
        spec["externalTrafficPolicy"] = "Local"
    return _service(cluster, names.broker_service(cluster, listener, broker), spec)


def _type(listener: Listener) -> str:
    return listener.type if listener.type in ("NodePort", "LoadBalancer") else "ClusterIP"


def _port(name: str, port: int) -> Json:
    return {"name": name, "port": port, "protocol": "TCP", "targetPort": port}


def _service(cluster: Cluster, name: str, spec: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Service", "metadata": names.metadata(cluster, name), "spec": spec}


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The addresses that Kubernetes has assigned to a Service. `node_port`: node port of its first
    port. `host`: host of its load balancer.
    """

    node_port: int | None = None
    host: str | None = None

    @classmethod
    def of(cls, service: Json) -> "ServiceAddress":
        """The addresses of a Service as the API server returns it."""
        port = (service["spec"].get("ports") or [{}])[0].get("nodePort")
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [{}]
        return cls(port, ingress[0].get("hostname") or ingress[0].get("ip"))


@dataclass(frozen=True, slots=True)
class ServiceAddresses:
    by_service: Mapping[str, ServiceAddress] = field(default_factory=dict)

    def of(self, service: str) -> ServiceAddress:
        return self.by_service.get(service, ServiceAddress())


def advertised_address(cluster: Cluster, listener: Listener, broker: int, addresses: ServiceAddresses) -> str | None:
    """host:port that a broker advertises to clients of an external listener; None before Kubernetes
    has given it.
    """
    assigned = addresses.of(names.broker_service(cluster, listener, broker))
    own = listener.advertised_host.replace("{id}", str(broker)) if listener.advertised_host else None
    if listener.type == "NodePort":
        return f"{own or NODE_ADDRESS}:{assigned.node_port}" if assigned.node_port else None
    host = own or assigned.host
    return f"{_bracketed(host)}:{listener.port}" if host else None


def services_without_address(cluster: Cluster, broker: int, addresses: ServiceAddresses) -> list[str]:
    """Services whose addresses a broker needs before it can advertise them."""
    return [
        names.broker_service(cluster, it, broker)
        for it in external_listeners(cluster)
        if advertised_address(cluster, it, broker, addresses) is None
    ]


def bootstrap_addresses(cluster: Cluster, addresses: ServiceAddresses) -> dict[str, str]:
    """Listener → bootstrap address, if it is known. `<node>` stands for the host of any node that
    forwards a node port.
    """
    by_listener: dict[str, str] = {}
    for listener in cluster.listeners:
        assigned = addresses.of(names.bootstrap_service(cluster, listener))
        if not is_external(listener):
            by_listener[listener.name] = (
                f"{names.service_host(cluster, names.bootstrap_service(cluster, listener))}:{listener.port}"
            )
        elif listener.type == "NodePort" and assigned.node_port:
            by_listener[listener.name] = f"<node>:{assigned.node_port}"
        elif listener.type == "LoadBalancer" and assigned.host:
            by_listener[listener.name] = f"{_bracketed(assigned.host)}:{listener.port}"
    return by_listener


def certificate_names(
    cluster: Cluster, brokers: Iterable[int], addresses: ServiceAddresses, node_ips: Iterable[str]
) -> frozenset[str]:
    """DNS names and IP addresses by which clients connect to listeners with TLS, and brokers to
    each other. `node_ips`: addresses of the nodes that brokers run on.
    """
    ids, service_names = list(brokers), {f"*.{names.headless_service(cluster)}"}
    if cluster.schema_registry_port is not None and cluster.registry_has_tls:
        service_names.add(names.registry_service(cluster))
    hosts: set[str] = set()
    for listener in cluster.listeners:
        if not listener.tls:
            continue
        service_names.add(names.bootstrap_service(cluster, listener))
        if not is_external(listener):
            continue
        hosts |= {
            given for broker in ids if (given := addresses.of(names.broker_service(cluster, listener, broker)).host)
        }
        if given := addresses.of(names.bootstrap_service(cluster, listener)).host:
            hosts.add(given)
        if listener.advertised_host is not None:
            hosts |= {listener.advertised_host.replace("{id}", str(broker)) for broker in ids}
        elif listener.type == "NodePort":
            hosts |= {*filter(None, node_ips)}
    namespace = cluster.metadata.namespace
    suffixes = (f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
    return frozenset({f"{service}{suffix}" for service in service_names for suffix in suffixes} | hosts)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def in_cluster_registry(cluster: Cluster) -> str:
    """URL of the schema registry for clients in the same Kubernetes cluster; empty without one."""
    if cluster.schema_registry_port is None:
        return ""
    host = names.service_host(cluster, names.registry_service(cluster))
    return f"{'https' if cluster.registry_has_tls else 'http'}://{host}:{cluster.schema_registry_port}"


def in_cluster_bootstrap(cluster: Cluster, *, has_tls: bool = False, has_login: bool = False) -> str:
    """host:port from which a client in the same Kubernetes cluster bootstraps, with TLS or without.
    `has_login`: at a listener with SCRAM. An internal listener is preferred. Empty if there is
    none.
    """
    listeners = [
        it for it in cluster.listeners if bool(it.tls) is has_tls and (it.authentication == "SCRAM") is has_login
    ]
    if not listeners:
        return ""
    listener = next((it for it in listeners if not is_external(it)), listeners[0])
    return f"{names.service_host(cluster, names.bootstrap_service(cluster, listener))}:{listener.port}"
