"""The ServiceAccount (without rights), NetworkPolicy and PodDisruptionBudget of the brokers."""

from collections.abc import Collection

from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json


def service_account(cluster: Cluster) -> Json:
    """An account of the brokers' own, for pull secrets and security policies. No token of it is
    mounted.
    """
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(cluster, cluster.name),
        "automountServiceAccountToken": False,
    }


def network_policy(cluster: Cluster, ports_in_use: Collection[int] = ()) -> Json:
    """Admits all connections to health, metrics, schemas and listeners that name no peers; to other
    listeners those of their peers; and connections of brokers and operators to the port between
    brokers. `ports_in_use`: that port in pods that were started before it changed."""
    between = sorted({names.brokers_port(cluster), *ports_in_use})
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
                    "ports": [_tcp(port) for port in between],
                },
                *(
                    {"from": it.network_policy_peers, "ports": [_tcp(it.port)]}
                    for it in cluster.listeners
                    if it.network_policy_peers
                ),
            ],
        },
    }


def disruption_budget(cluster: Cluster, *, can_spare_a_broker: bool = True) -> Json:
    """`can_spare_a_broker`: True if every partition can spare a broker. Kubernetes knows which pods
    are ready, not what they still have to copy: without this, nodes that are drained one after the
    other would take the second broker as soon as the first is ready again.
    """
    roll = cluster.spec.roll
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(cluster, cluster.name),
        "spec": {
            "maxUnavailable": ((roll and roll.max_unavailable) or 1) if can_spare_a_broker else 0,
            "selector": {"matchLabels": names.selector(cluster)},
            # A pod that is not ready protects nothing by staying.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _tcp(port: int) -> Json:
    return {"port": port, "protocol": "TCP"}
