"""CustomResourceDefinitions of the kinds. `python -m ottla_operator.crd_files` writes them."""

from dataclasses import dataclass
from typing import Final

from ottla_operator.resources.access_policy import AccessPolicy, AccessPolicySpec, AccessPolicyStatus
from ottla_operator.resources.cluster import Cluster, ClusterSpec
from ottla_operator.resources.cluster_status import ClusterStatus
from ottla_operator.resources.common import API_VERSION, Resource, Status
from ottla_operator.resources.mirror import Mirror, MirrorSpec, MirrorStatus
from ottla_operator.resources.model import Model
from ottla_operator.resources.pipeline import Pipeline, PipelineSpec, PipelineStatus
from ottla_operator.resources.schema import Schema, structural_schema
from ottla_operator.resources.schema_resource import Schema as SchemaResource
from ottla_operator.resources.schema_resource import SchemaSpec, SchemaStatus
from ottla_operator.resources.topic import Topic, TopicSpec, TopicStatus
from ottla_operator.resources.user import User, UserSpec, UserStatus


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of `kubectl get`. `wide`: only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def manifest(self) -> Schema:
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path} | priority


READY: Final = Column("Ready", ".status.conditions[?(@.type=='Ready')].status")
REASON: Final = Column("Reason", ".status.conditions[?(@.type=='Ready')].reason")
MESSAGE: Final = Column("Message", ".status.conditions[?(@.type=='Ready')].message", wide=True)
AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of custom resource: its types, its names and its printer columns."""

    model: type[Resource]
    spec: type[Model]
    status: type[Status]
    plural: str
    short: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: bool = False

    @property
    def name(self) -> str:
        return self.model.__name__


KINDS: Final = (
    Kind(
        Cluster,
        ClusterSpec,
        ClusterStatus,
        "clusters",
        ("okc",),
        (
            Column("Replicas", ".spec.replicas", "integer"),
            Column("Serving", ".status.readyReplicas", "integer"),
            Column("Controller", ".status.controller", "integer", wide=True),
            Column("Under-replicated", ".status.underReplicated", "integer"),
            Column("Certificate-expires", ".status.certificate.notAfter", wide=True),
            Column("Version", ".status.version", wide=True),
        ),
        scale=True,
    ),
    Kind(
        Topic,
        TopicSpec,
        TopicStatus,
        "topics",
        ("okt",),
        (
            Column("Cluster", ".spec.clusterRef.name"),
            Column("Partitions", ".status.partitions", "integer"),
            Column("Replicas", ".status.replicas", "integer"),
        ),
    ),
    Kind(
        SchemaResource,
        SchemaSpec,
        SchemaStatus,
        "schemas",
        ("oks",),
        (
            Column("Cluster", ".spec.clusterRef.name"),
            Column("Subject", ".status.subject"),
            Column("Version", ".status.version", "integer"),
            Column("Id", ".status.id", "integer"),
            Column("Compatibility", ".status.compatibility", wide=True),
        ),
    ),
    Kind(
        User,
        UserSpec,
        UserStatus,
        "users",
        ("oku",),
        (
            Column("Cluster", ".spec.clusterRef.name"),
            Column("Authentication", ".spec.authentication.type"),
            Column("Secret", ".status.secret"),
            Column("Principal", ".status.userName", wide=True),
            Column("Certificate-expires", ".status.certificate.notAfter", wide=True),
        ),
    ),
    Kind(
        AccessPolicy,
        AccessPolicySpec,
        AccessPolicyStatus,
        "accesspolicies",
        ("okap",),
        (Column("Users", ".status.users", "integer"),),
    ),
    Kind(
        Mirror,
        MirrorSpec,
        MirrorStatus,
        "mirrors",
        ("okm",),
        (
            Column("Target", ".spec.target.clusterRef.name"),
            Column("Role", ".status.role"),
            Column("Lag", ".status.lagRecords", "integer"),
            Column("Lag-seconds", ".status.lagSeconds", "number", wide=True),
        ),
    ),
    Kind(
        Pipeline,
        PipelineSpec,
        PipelineStatus,
        "pipelines",
        ("okp",),
        (
            Column("Cluster", ".spec.clusterRef.name"),
            Column("State", ".status.state"),
            Column("Rows/s", ".status.inputRowsPerSecond", "number"),
            Column("Lag", ".status.lagRecords", "integer"),
            Column("Error", ".status.lastError", wide=True),
        ),
    ),
)
GROUP, VERSION = API_VERSION.split("/")
# Status of a new resource until the operator reconciles it. Without a Ready condition, tools would
# report it as done.
INITIAL_STATUS: Final = {
    "conditions": [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "WaitingForOperator",
            "message": "The operator has not reconciled this resource yet.",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
    ]
}


def openapi_schema(kind: Kind) -> Schema:
    """openAPIV3Schema of the whole object."""
    return {
        "type": "object",
        "description": kind.model.__doc__,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural_schema(kind.spec),
            "status": {**structural_schema(kind.status), "default": INITIAL_STATUS},
        },
    }


def build_crd(kind: Kind) -> Schema:
    subresources: Schema = {"status": {}}
    if kind.scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    columns = (*kind.columns, READY, REASON, MESSAGE, AGE)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short),
                "categories": ["ottla"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": [column.manifest() for column in columns],
                    "schema": {"openAPIV3Schema": openapi_schema(kind)},
                }
            ],
        },
    }
