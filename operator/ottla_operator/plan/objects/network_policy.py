"""The NetworkPolicy of the brokers."""

from collections.abc import Collection

from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json


def network_policy(cluster: Cluster, ports_in_use: Collection[int] = ()) -> Json:
    """Admits all connections to health, metrics, schemas and listeners that name no peers, only
    connections of their peers to other listeners, and only those of brokers and operators to the
    inter-broker port. `ports_in_use`: that port in pods that were started before it changed."""
    inter_broker_ports = sorted({names.brokers_port(cluster), *ports_in_use})
    open_ports = [*(it.port for it in cluster.listeners if not it.network_policy_peers), names.http_port(cluster)]
    if cluster.schema_registry_port is not None:
        open_ports.append(cluster.schema_registry_port)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(cluster, cluster.name),
        "spec": {
            "podSelector": {"matchLabels": names.selector(cluster)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [_tcp(port) for port in open_ports]},
                {
                    "from": [
                        {"podSelector": {"matchLabels": names.selector(cluster)}},
                        {"namespaceSelector": {}, "podSelector": {"matchLabels": names.OPERATOR}},
                    ],
                    "ports": [_tcp(port) for port in inter_broker_ports],
                },
                *(
                    {"from": it.network_policy_peers, "ports": [_tcp(it.port)]}
                    for it in cluster.listeners
                    if it.network_policy_peers
                ),
            ],
        },
    }


def _tcp(port: int) -> Json:
    return {"port": port, "protocol": "TCP"}
