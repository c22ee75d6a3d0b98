"""The PodDisruptionBudget of the brokers."""

from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json


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
