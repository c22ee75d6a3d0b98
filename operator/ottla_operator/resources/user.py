"""User: a principal of a cluster, with credentials, access rules and quotas."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ottla_operator.resources.common import (
    Duration,
    ObjectName,
    ObjectRef,
    Resource,
    SecretKeyRef,
    Status,
    Timestamp,
)
from ottla_operator.resources.model import Model, Rule, Transition, doc, immutable, listed


class Authentication(Model, frozen=True):
    """How the user authenticates."""

    type: Annotated[
        Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "TLS"],
        doc("SCRAM-SHA-256 or SCRAM-SHA-512: user name and password. TLS: client certificate."),
    ]
    password_from: Annotated[
        SecretKeyRef | None, doc("Secret key that holds the password. Defaults to a generated password.")
    ] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "!has(self.passwordFrom) || self.type != 'TLS'",
            "passwordFrom is only for SCRAM; a certificate has no password",
            lambda value: "passwordFrom" not in value or value.get("type") != "TLS",
            "passwordFrom",
        ),
    )


class AclResource(Model, frozen=True):
    """Resource that an access rule applies to."""

    type: Annotated[Literal["Topic", "Group", "Cluster", "TransactionalId"], doc("Type of the Kafka resource.")]
    name: Annotated[
        Annotated[str, Meta(max_length=249)] | None,
        doc("Name of the Kafka resource, or '*' for all. Not set for Cluster."),
    ] = None
    pattern: Annotated[
        Literal["Literal", "Prefixed"] | None,
        doc("Literal: name is the whole name. Prefixed: name is a prefix. Defaults to Literal."),
    ] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "(self.type == 'Cluster') != has(self.name)",
            "Topic, Group and TransactionalId need a name ('*' for all); Cluster has none",
            lambda value: (value.get("type") == "Cluster") != ("name" in value),
            "name",
        ),
    )


Operation = Literal[
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
]


class AclRule(Model, frozen=True):
    """Access rule."""

    resource: Annotated[AclResource, doc("Resource that the rule applies to.")]
    operations: Annotated[
        list[Operation],
        Meta(
            min_length=1,
            max_length=16,
            description="Kafka operations that are allowed or denied.",
            extra_json_schema=listed("set"),
        ),
    ]
    host: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        doc("Client IP address that the rule applies to. Defaults to any."),
    ] = None
    permission: Annotated[
        Literal["Allow", "Deny"] | None,
        doc("Allow or Deny. A Deny takes precedence over every Allow. Defaults to Allow."),
    ] = None


class Quotas(Model, frozen=True):
    """Limits on the user's load. A limit that is not set does not apply."""

    producer_byte_rate: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        doc("Bytes per second that the user may produce to each broker."),
    ] = None
    consumer_byte_rate: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        doc("Bytes per second that the user may consume from each broker."),
    ] = None
    request_percentage: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        doc("Share of a broker's time that the user's requests may take, in percent of one thread."),
    ] = None
    controller_mutation_rate: Annotated[
        Annotated[int, Meta(ge=1)] | None, doc("Partitions per second that the user may create or delete.")
    ] = None


class Rotation(Model, frozen=True):
    """Rotation of credentials that the operator generates."""

    every: Annotated[Duration, doc("Lifetime of a credential.")]
    overlap: Annotated[
        Duration | None, doc("Time for which the previous credential remains valid. Defaults to 1h.")
    ] = None


class UserSpec(Model, frozen=True):
    """Desired state of the user."""

    cluster_ref: Annotated[ObjectRef, doc("Cluster that the user belongs to. Immutable.")]
    authentication: Annotated[Authentication, doc("How the user authenticates.")]
    user_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        doc("Name that clients authenticate with. Immutable. Defaults to metadata.name."),
    ] = None
    secret_name: Annotated[
        ObjectName | None, doc("Secret that the credentials are written to. Defaults to metadata.name.")
    ] = None
    acls: Annotated[
        Annotated[list[AclRule], Meta(max_length=256)] | None,
        doc("Access rules of the user. They apply on clusters with authorization type ACL.", listed("atomic")),
    ] = None
    quotas: Annotated[Quotas | None, doc("Limits on the user's load. Defaults to no limits.")] = None
    rotation: Annotated[Rotation | None, doc("Rotation of generated credentials. Defaults to no rotation.")] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Transition(
            "self.clusterRef.name == oldSelf.clusterRef.name",
            "clusterRef is immutable; create a new User instead",
            lambda new, old: bool(new["clusterRef"]["name"] == old["clusterRef"]["name"]),
            "clusterRef",
        ),
        immutable("userName", "userName is immutable; create a new User instead"),
    )


class UserStatus(Status, frozen=True):
    """Observed state of the user."""

    user_name: Annotated[str | None, doc("Name that clients authenticate with.")] = None
    secret: Annotated[str | None, doc("Secret that holds the credentials.")] = None
    rotated_at: Annotated[Timestamp | None, doc("Time at which the credentials were last rotated.")] = None


class User(Resource, frozen=True):
    """A principal of a Cluster: credentials in a Secret, access rules and quotas."""

    kind: Literal["User"]
    spec: UserSpec
    status: UserStatus | None = None
