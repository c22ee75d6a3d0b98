"""Schema: desired state of one subject of a Cluster's schema registry. The registry stores the
subject's schemas.
"""

from typing import Annotated, Literal

from msgspec import Meta

from ottla_operator.resources.common import ObjectRef, Resource, Status, Tenant, tenant_prefix
from ottla_operator.resources.formats import Subject
from ottla_operator.resources.model import (
    Json,
    Model,
    Rule,
    doc,
    exactly_one,
    immutable,
    immutable_cluster_ref,
    listed,
)

Level = Literal["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"]
Version = Annotated[int, Meta(ge=1)]


def subject_name(resource: str, subject: str | None, tenant: str | None) -> str:
    """Subject in the registry. `resource`: name of the Schema. `subject`, `tenant`: those of its
    spec."""
    return f"{tenant_prefix(tenant)}{subject or resource}"


def stored_subject_name(resource: Json) -> str:
    """Subject of a Schema in plain JSON."""
    spec = resource["spec"]
    return subject_name(resource["metadata"]["name"], spec.get("subject"), spec.get("tenant"))


class ConfigMapKeyRef(Model, frozen=True):
    """Reference to one key of a ConfigMap in the same namespace."""

    name: Annotated[str, Meta(max_length=253, description="Name of the ConfigMap.")]
    key: Annotated[str, Meta(max_length=253, description="Key in the ConfigMap's data.")]


class SchemaSource(Model, frozen=True):
    """Where the text of a schema is."""

    file: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None,
        doc("With `ottla up`: path of a file, relative to the one that describes the Schema."),
    ] = None
    config_map_key_ref: Annotated[ConfigMapKeyRef | None, doc("On Kubernetes: key of a ConfigMap.")] = None

    rules = (exactly_one("file", "configMapKeyRef", message="schemaFrom has exactly one of file and configMapKeyRef"),)


class SchemaReference(Model, frozen=True):
    """A schema that the schema refers to."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            description="How the text refers to it. AVRO: full name of the type. JSON: the name in $ref. PROTOBUF: "
            "the name in import.",
        ),
    ]
    subject: Annotated[Subject | None, doc("Its subject in the registry. Needs version.")] = None
    version: Annotated[Version | None, doc("Its version in the subject.")] = None
    schema_ref: Annotated[
        ObjectRef | None,
        doc(
            "Instead of subject and version: another Schema of the Cluster. A new version of that Schema registers "
            "this schema again, with a reference to the new version."
        ),
    ] = None

    rules = (
        exactly_one("subject", "schemaRef", message="a reference has exactly one of subject and schemaRef"),
        Rule(
            "has(self.subject) == has(self.version)",
            "a reference to a subject needs a version, and one to a Schema has none",
            lambda value: ("subject" in value) == ("version" in value),
            "version",
        ),
    )


class SchemaSpec(Model, frozen=True):
    """Desired state of the subject. The operator does not manage fields that are not set."""

    cluster_ref: Annotated[ObjectRef, doc("Cluster in whose registry the schema is registered. Immutable.")]
    subject: Annotated[
        Subject | None,
        doc(
            "Subject in the registry, without the tenant. That of a topic's values is the topic's name with -value, "
            "that of its keys with -key. Immutable. Defaults to metadata.name."
        ),
    ] = None
    tenant: Annotated[
        Tenant | None,
        doc("Tenant that the topic of the subject belongs to. The subject begins with it: TENANT.SUBJECT. Immutable."),
    ] = None
    type: Annotated[Literal["AVRO", "JSON", "PROTOBUF"], doc("Language of the schema. Defaults to AVRO.")] = "AVRO"
    schema: Annotated[Annotated[str, Meta(min_length=1, max_length=1_000_000)] | None, doc("Text of the schema.")] = (
        None
    )
    schema_from: Annotated[SchemaSource | None, doc("Instead of schema: where the text is.")] = None
    references: Annotated[
        Annotated[list[SchemaReference], Meta(max_length=100)] | None,
        doc("Schemas that the schema refers to.", listed("map", "name")),
    ] = None
    compatibility: Annotated[
        Level | None,
        doc(
            "Earlier versions that a new version of the subject is compared with, and how. It is set before the schema "
            "is registered. Not set: the level is not managed."
        ),
    ] = None
    deletion_policy: Annotated[
        Literal["Retain", "Delete"] | None,
        doc(
            "What happens to the subject when this resource is deleted. Retain: it is kept, and the resource has no "
            "finalizer. Delete: it is soft-deleted, so that records with its ids can be read; the resource "
            "has a finalizer until then. Defaults to Retain."
        ),
    ] = None

    rules = (
        exactly_one("schema", "schemaFrom", message="a Schema has exactly one of schema and schemaFrom"),
        immutable("tenant", "tenant is immutable; create a new Schema instead"),
        immutable("subject", "subject is immutable; create a new Schema instead"),
        immutable_cluster_ref("clusterRef is immutable; create a new Schema instead"),
    )


class SchemaStatus(Status, frozen=True):
    """Observed state of the subject."""

    subject: Annotated[str | None, doc("Subject in the registry.")] = None
    id: Annotated[int | None, doc("Id of the schema, which records carry.")] = None
    version: Annotated[int | None, doc("Version of the subject that has the schema.")] = None
    compatibility: Annotated[str | None, doc("Compatibility level that applies to the subject.")] = None


class Schema(Resource, frozen=True):
    """A schema in the schema registry of a Cluster. Earlier versions of its subject stay."""

    kind: Literal["Schema"]
    spec: SchemaSpec
    status: SchemaStatus | None = None

    @property
    def subject(self) -> str:
        return subject_name(self.metadata.name, self.spec.subject, self.spec.tenant)
