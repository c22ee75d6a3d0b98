"""Who the driver is and what it may: make, watch and take away the pods of executors and what Spark makes around them."""

from typing import Final

from ottla_operator.plan.pipeline import names
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

RBAC: Final = "rbac.authorization.k8s.io"
RULES: Final[tuple[Json, ...]] = (
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["create", "get", "list", "watch", "patch", "delete", "deletecollection"],
    },
    {
        "apiGroups": [""],
        "resources": ["services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "delete", "deletecollection"],
    },
)
"""The operator has to have all of these itself: only who has a right can give it."""


def service_account(pipeline: Pipeline) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(pipeline, names.driver(pipeline)),
    }


def role(pipeline: Pipeline) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": names.metadata(pipeline, names.driver(pipeline)),
        "rules": [dict(it) for it in RULES],
    }


def role_binding(pipeline: Pipeline) -> Json:
    name = names.driver(pipeline)
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": names.metadata(pipeline, name),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": pipeline.metadata.namespace}],
    }


def claim(pipeline: Pipeline) -> Json | None:
    """The checkpoint's volume, where the operator makes it. It stays when the Pipeline goes: how far a pipeline is belongs to the data. One node can write
    it, which every storage class can do."""
    checkpoint = pipeline.spec.checkpoint
    if checkpoint is None or checkpoint.pvc is None or checkpoint.pvc.size is None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": names.metadata(pipeline, names.claim(pipeline), owned=False),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": checkpoint.pvc.size}},
        },
    }
