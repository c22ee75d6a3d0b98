"""The kinds of objects that the operator reads and writes, and their paths on the API server."""

from dataclasses import dataclass
from typing import Final

from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.model import Json


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """`api`: group/version, or v1."""

    api: str
    name: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """Path below the API server's root. `namespace`: None for all namespaces, and for kinds
        without one. `name`: None for all objects.
        """
        root = f"/api/{self.api}" if "/" not in self.api else f"/apis/{self.api}"
        return "/".join(
            [
                root,
                *(["namespaces", namespace] if namespace else []),
                self.plural,
                *([name] if name is not None else []),
            ]
        )


CLUSTER: Final = ObjectKind(API_VERSION, "Cluster", "clusters")
TOPIC: Final = ObjectKind(API_VERSION, "Topic", "topics")
PIPELINE: Final = ObjectKind(API_VERSION, "Pipeline", "pipelines")
MIRROR: Final = ObjectKind(API_VERSION, "Mirror", "mirrors")
GROUP: Final = ObjectKind(API_VERSION, "Group", "groups")
SCHEMA: Final = ObjectKind(API_VERSION, "Schema", "schemas")
USER: Final = ObjectKind(API_VERSION, "User", "users")
ACCESS_POLICY: Final = ObjectKind(API_VERSION, "AccessPolicy", "accesspolicies")
POD: Final = ObjectKind("v1", "Pod", "pods")
NODE: Final = ObjectKind("v1", "Node", "nodes")
SERVICE: Final = ObjectKind("v1", "Service", "services")
SECRET: Final = ObjectKind("v1", "Secret", "secrets")
CONFIG_MAP: Final = ObjectKind("v1", "ConfigMap", "configmaps")
CLAIM: Final = ObjectKind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENT: Final = ObjectKind("v1", "Event", "events")
STATEFUL_SET: Final = ObjectKind("apps/v1", "StatefulSet", "statefulsets")
DEPLOYMENT: Final = ObjectKind("apps/v1", "Deployment", "deployments")
SPARK_APPLICATION: Final = ObjectKind("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplications")
LEASE: Final = ObjectKind("coordination.k8s.io/v1", "Lease", "leases")
SUBJECT_ACCESS_REVIEW: Final = ObjectKind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews")

_ALL: Final = (
    *(
        CLUSTER,
        TOPIC,
        PIPELINE,
        MIRROR,
        GROUP,
        SCHEMA,
        USER,
        ACCESS_POLICY,
        POD,
        NODE,
        SERVICE,
        SECRET,
        CONFIG_MAP,
        CLAIM,
        EVENT,
        STATEFUL_SET,
        LEASE,
    ),
    *(DEPLOYMENT, SPARK_APPLICATION, SUBJECT_ACCESS_REVIEW),
    ObjectKind("v1", "ServiceAccount", "serviceaccounts"),
    ObjectKind("rbac.authorization.k8s.io/v1", "Role", "roles"),
    ObjectKind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    ObjectKind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    ObjectKind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
)
_BY_NAME: Final = {(it.api, it.name): it for it in _ALL}


def kind_of(resource: Json) -> ObjectKind:
    """The kind of an object with apiVersion and kind. Raises KeyError for kinds that the operator
    does not use.
    """
    return _BY_NAME[resource["apiVersion"], resource["kind"]]
