"""The StatefulSet of the brokers: all pods at once, none restarted but by us, a volume claim for each."""

from collections.abc import Mapping

from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json


def stateful_set(cluster: Cluster, template: Json, brokers: int, annotations: Mapping[str, str] | None = None) -> Json:
    """`brokers`: how many pods there shall be now; while brokers leave, more than the Cluster wants. `annotations`: what the operator notes down."""
    storage = cluster.spec.storage
    assert storage is not None
    kept = "Delete" if storage.delete_claim else "Retain"
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    if storage.class_ is not None:
        claim["storageClassName"] = storage.class_
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": names.metadata(cluster, cluster.name, annotations=dict(annotations or {})),
        "spec": {
            "replicas": brokers,
            "serviceName": names.headless_service(cluster),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "ordinals": {"start": names.FIRST_BROKER},
            "revisionHistoryLimit": 3,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": kept, "whenScaled": kept},
            "selector": {"matchLabels": names.selector(cluster)},
            "template": template,
            "volumeClaimTemplates": [
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "data", "labels": names.selector(cluster)},
                    "spec": claim,
                }
            ],
        },
    }


def claimed_storage(stateful_set: Json) -> str:
    """The size that its volume claims are made with."""
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    return str(claim["spec"]["resources"]["requests"]["storage"])
