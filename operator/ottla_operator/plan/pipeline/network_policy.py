"""NetworkPolicy for the pods of a Pipeline."""

from ottla_operator.plan.pipeline import names, pods
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline


def network_policy(pipeline: Pipeline) -> Json:
    """Driver and executors reach each other at any port, because Spark chooses most ports itself.
    Status and metrics are open to all pods. Spark's own page (port 4040) has no access control, so
    only `kubectl port-forward` reaches it.
    """
    members = {
        "matchLabels": names.common_labels(pipeline),
        "matchExpressions": [{"key": names.COMPONENT, "operator": "In", "values": sorted(names.POD_COMPONENTS)}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(pipeline, names.network_policy(pipeline)),
        "spec": {
            "podSelector": members,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": members}]},
                {"ports": [{"port": pods.HTTP_PORT, "protocol": "TCP"}]},
            ],
        },
    }
