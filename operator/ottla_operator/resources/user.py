"""User: a principal of a cluster, its credentials, what it may do and how much."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ottla_operator.resources.common import Duration, ObjectName, ObjectRef, Resource, SecretKeyRef, Status
from ottla_operator.resources.model import Model, Rule, Transition, immutable


class Authentication(Model):
    """How the user says who they are."""

    type: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "TLS"] = Field(
        description="SCRAM: user and password. TLS: a client certificate."
    )
    password_from: SecretKeyRef | None = Field(
        default=None,
        description="Where the password is taken from; without it, one is made up and written to the Secret.",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "!has(self.passwordFrom) || self.type != 'TLS'",
            "passwordFrom is for SCRAM: a certificate has no password",
            lambda it: "passwordFrom" not in it or it.get("type") != "TLS",
            "passwordFrom",
        ),
    )


class AclResource(Model):
    """What an access rule is about."""

    type: Literal["Topic", "Group", "Cluster", "TransactionalId"] = Field(description="Kind of thing.")
    name: str | None = Field(default=None, max_length=249, description="Its name, or '*' for all. Not for Cluster.")
    pattern: Literal["Literal", "Prefixed"] | None = Field(
        default=None, description="Whether `name` is the whole name (when not set) or its beginning."
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "(self.type == 'Cluster') != has(self.name)",
            "Topic, Group and TransactionalId need a name ('*' for all); Cluster has none",
            lambda it: (it.get("type") == "Cluster") != ("name" in it),
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


class AclRule(Model):
    """One access rule."""

    resource: AclResource = Field(description="What it is about.")
    operations: Annotated[list[Operation], Field(min_length=1, max_length=16)] = Field(
        description="What is allowed or denied, under Kafka's names.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    host: str | None = Field(
        default=None, max_length=64, description="Only from this IP address; from anywhere when not set."
    )
    permission: Literal["Allow", "Deny"] | None = Field(
        default=None, description="Allow (when not set), or Deny, which wins over every Allow."
    )


class Quotas(Model):
    """How much the user may take; what is left out is not limited."""

    producer_byte_rate: int | None = Field(
        default=None, ge=1, description="Bytes per second and broker that it may produce."
    )
    consumer_byte_rate: int | None = Field(
        default=None, ge=1, description="Bytes per second and broker that it may consume."
    )
    request_percentage: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Share of a broker's time that its requests may take, in per cent of one thread.",
    )
    controller_mutation_rate: int | None = Field(
        default=None, ge=1, description="Partitions per second that it may create or delete."
    )


class Rotation(Model):
    """Renewal of credentials that the operator makes."""

    every: Duration = Field(description="How long credentials live.")
    overlap: Duration | None = Field(
        default=None, description="How long the old ones stay good beside the new ones; 1h when not set."
    )


class UserSpec(Model):
    """What the user should be."""

    cluster_ref: ObjectRef = Field(description="The Cluster that the user belongs to. Never changes.")
    user_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=249,
        description="The name that clients log in with; without it, the resource's own. Never changes.",
    )
    authentication: Authentication = Field(description="How the user says who they are.")
    secret_name: ObjectName | None = Field(
        default=None, description="The Secret that credentials are written to; without it, the resource's own name."
    )
    acls: Annotated[list[AclRule], Field(max_length=256)] | None = Field(
        default=None,
        description="What the user may do; takes effect on clusters with authorization ACL.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    quotas: Quotas | None = Field(default=None, description="How much the user may take.")
    rotation: Rotation | None = Field(default=None, description="Renews credentials; without it, they stay.")

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Transition(
            "self.clusterRef.name == oldSelf.clusterRef.name",
            "clusterRef cannot be changed; make a new User instead",
            lambda new, old: bool(new["clusterRef"]["name"] == old["clusterRef"]["name"]),
            "clusterRef",
        ),
        immutable("userName", "userName cannot be changed; make a new User instead"),
    )


class UserStatus(Status):
    """What the user is."""

    user_name: str | None = Field(default=None, description="The name that clients log in with.")
    secret: str | None = Field(default=None, description="The Secret that holds the credentials.")
    rotated_at: str | None = Field(
        default=None, description="When credentials were last renewed.", json_schema_extra={"format": "date-time"}
    )


class User(Resource):
    """A principal of a cluster: credentials in a Secret, access rules and quotas."""

    kind: Literal["User"]
    spec: UserSpec
    status: UserStatus | None = None
