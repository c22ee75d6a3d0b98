"""Services: one that names every broker, one for each listener to begin with, and one for each broker where clients come from outside."""

from collections.abc import Iterable

from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster, Listener
from ottla_operator.resources.model import Json


def is_external(listener: Listener) -> bool:
    """Whether its clients are outside the Kubernetes cluster."""
    return listener.type in ("NodePort", "LoadBalancer")


def external_listeners(cluster: Cluster) -> list[Listener]:
    return [it for it in cluster.listeners if is_external(it)]


def services(cluster: Cluster, brokers: Iterable[int]) -> list[Json]:
    """`brokers`: ids that have, or are about to get, a pod."""
    ids = list(brokers)
    return [
        _headless(cluster),
        *(_bootstrap(cluster, it) for it in cluster.listeners),
        *(_of_broker(cluster, it, broker) for it in external_listeners(cluster) for broker in ids),
    ]


def _headless(cluster: Cluster) -> Json:
    """Its names are there before a broker is ready: brokers need each other to become so."""
    ports = [
        (names.BROKERS_PORT, names.brokers_port(cluster)),
        (names.HTTP_PORT, names.http_port(cluster)),
        *((it.name, it.port) for it in cluster.listeners),
    ]
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": names.selector(cluster),
        "ports": [_port(name, port) for name, port in ports],
    }
    return _service(cluster, names.headless_service(cluster), spec)


def _bootstrap(cluster: Cluster, listener: Listener) -> Json:
    port = _port(listener.name, listener.port)
    if listener.node_port is not None:
        port["nodePort"] = listener.node_port
    spec = {"type": _type(listener), "selector": names.selector(cluster), "ports": [port]}
    return _service(cluster, names.bootstrap_service(cluster, listener), spec)


def _of_broker(cluster: Cluster, listener: Listener, broker: int) -> Json:
    """A client is told the address of the node that the broker is on, so that a node port does not have to hand on: Local."""
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
