"""CustomResourceDefinitions of the kinds. `python -m ottla_operator.crd_files` writes them."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from msgspec import structs

from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import API_VERSION, Resource
from ottla_operator.resources.group import Group
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Model
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.schema import JsonSchema, nested_model, structural_schema
from ottla_operator.resources.schema_resource import Schema as SchemaResource
from ottla_operator.resources.topic import Topic
from ottla_operator.resources.user import User


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A printer column of `kubectl get`. `is_wide`: only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    is_wide: bool = False

    def manifest(self) -> JsonSchema:
        priority = {"priority": 1} if self.is_wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path} | priority


READY: Final = PrinterColumn("Ready", ".status.conditions[?(@.type=='Ready')].status")
REASON: Final = PrinterColumn("Reason", ".status.conditions[?(@.type=='Ready')].reason")
MESSAGE: Final = PrinterColumn("Message", ".status.conditions[?(@.type=='Ready')].message", is_wide=True)
AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class CustomResourceKind:
    """A kind of custom resource: its types, its names and its printer columns."""

    model: type[Resource]
    plural: str
    short_name: str
    columns: tuple[PrinterColumn, ...]
    has_scale: bool = False

    @property
    def name(self) -> str:
        return self.model.__name__

    @property
    def spec(self) -> type[Model]:
        return _model_of_field(self.model, "spec")

    @property
    def status(self) -> type[Model]:
        return _model_of_field(self.model, "status")


@cache
def _model_of_field(model: type[Resource], name: str) -> type[Model]:
    found, _ = nested_model(next(it.type for it in structs.fields(model) if it.name == name))
    assert found is not None, f"{name} of {model.__name__} is an object"
    return found


KINDS: Final = (
    CustomResourceKind(
        Cluster,
        "clusters",
        "okc",
        (
            PrinterColumn("Replicas", ".spec.replicas", "integer"),
            PrinterColumn("Serving", ".status.readyReplicas", "integer"),
            PrinterColumn("Controller", ".status.controller", "integer", is_wide=True),
            PrinterColumn("Under-replicated", ".status.underReplicated", "integer"),
            PrinterColumn("Certificate-expires", ".status.certificate.notAfter", is_wide=True),
            PrinterColumn("Version", ".status.version", is_wide=True),
        ),
        has_scale=True,
    ),
    CustomResourceKind(
        Topic,
        "topics",
        "okt",
        (
            PrinterColumn("Cluster", ".spec.clusterRef.name"),
            PrinterColumn("Partitions", ".status.partitions", "integer"),
            PrinterColumn("Replicas", ".status.replicas", "integer"),
        ),
    ),
    CustomResourceKind(
        Group,
        "groups",
        "okg",
        (
            PrinterColumn("Cluster", ".spec.clusterRef.name"),
            PrinterColumn("Group", ".status.groupName"),
        ),
    ),
    CustomResourceKind(
        SchemaResource,
        "schemas",
        "oks",
        (
            PrinterColumn("Cluster", ".spec.clusterRef.name"),
            PrinterColumn("Subject", ".status.subject"),
            PrinterColumn("Version", ".status.version", "integer"),
            PrinterColumn("Id", ".status.id", "integer"),
            PrinterColumn("Compatibility", ".status.compatibility", is_wide=True),
        ),
    ),
    CustomResourceKind(
        User,
        "users",
        "oku",
        (
            PrinterColumn("Cluster", ".spec.clusterRef.name"),
            PrinterColumn("Authentication", ".spec.authentication.type"),
            PrinterColumn("Secret", ".status.secret"),
            PrinterColumn("Principal", ".status.userName", is_wide=True),
            PrinterColumn("Certificate-expires", ".status.certificate.notAfter", is_wide=True),
        ),
    ),
    CustomResourceKind(
        AccessPolicy,
        "accesspolicies",
        "okap",
        (PrinterColumn("Users", ".status.users", "integer"),),
    ),
    CustomResourceKind(
        Mirror,
        "mirrors",
        "okm",
        (
            PrinterColumn("Target", ".spec.target.clusterRef.name"),
            PrinterColumn("Role", ".status.role"),
            PrinterColumn("Lag", ".status.lagRecords", "integer"),
            PrinterColumn("Lag-seconds", ".status.lagSeconds", "number", is_wide=True),
        ),
    ),
    CustomResourceKind(
        Pipeline,
        "pipelines",
        "okp",
        (
            PrinterColumn("Cluster", ".spec.clusterRef.name"),
            PrinterColumn("State", ".status.state"),
            PrinterColumn("Rows/s", ".status.inputRowsPerSecond", "number"),
            PrinterColumn("Lag", ".status.lagRecords", "integer"),
            PrinterColumn("Error", ".status.lastError", is_wide=True),
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


def openapi_schema(kind: CustomResourceKind) -> JsonSchema:
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


def build_crd(kind: CustomResourceKind) -> JsonSchema:
    subresources: JsonSchema = {"status": {}}
    if kind.has_scale:
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
                "shortNames": [kind.short_name],
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
