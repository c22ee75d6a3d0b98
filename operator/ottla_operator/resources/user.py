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
from ottla_operator.resources.model import Model, Rule, Transition, doc, exactly_one, immutable, listed


class Authentication(Model, frozen=True):
    """How the user authenticates."""

    type: Annotated[
        Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "TLS", "External"],
        doc(
            "SCRAM-SHA-256 or SCRAM-SHA-512: user name and password, which are written to a Secret. TLS: client "
            "certificate, issued by the authority of a Cluster with tls.issuer: Internal and written to a Secret. "
            "External: others issue the credential, such as an OAuth token or a client certificate; the user has only "
            "access rules and quotas."
        ),
    ]
    password_from: Annotated[
        SecretKeyRef | None, doc("Secret key that holds the password. Defaults to a generated password.")
    ] = None
    overlap: Annotated[
        Duration | None,
        doc(
            "Time for which the previous password stays valid after type was changed from one SCRAM type to the "
            "other, which rotates a generated password. Defaults to none: it is removed at once."
        ),
    ] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "!has(self.passwordFrom) || self.type.startsWith('SCRAM')",
            "passwordFrom is only for SCRAM",
            lambda value: "passwordFrom" not in value or value["type"].startswith("SCRAM"),
            "passwordFrom",
        ),
        Rule(
            "!has(self.overlap) || self.type.startsWith('SCRAM')",
            "overlap is only for SCRAM",
            lambda value: "overlap" not in value or value["type"].startswith("SCRAM"),
            "overlap",
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


Operations = Annotated[list[Operation], Meta(min_length=1, max_length=16, extra_json_schema=listed("set"))]
PatternText = Annotated[str, Meta(min_length=1, max_length=249)]


class AclRule(Model, frozen=True):
    """Access rule: `{allow: [Read, Write], topic: orders*}`."""

    allow: Annotated[Operations | None, doc("Kafka operations that are allowed.")] = None
    deny: Annotated[
        Operations | None, doc("Kafka operations that are denied. A denial takes precedence over every allow.")
    ] = None
    topic: Annotated[PatternText | None, doc("Name of a topic; `orders*` is a prefix, `*` every topic.")] = None
    group: Annotated[PatternText | None, doc("Id of a consumer group; `*` at its end as for topic.")] = None
    transactional_id: Annotated[PatternText | None, doc("Transactional id; `*` at its end as for topic.")] = None
    cluster: Annotated[bool | None, doc("The cluster itself. Only true is allowed.")] = None
    resource: Annotated[
        AclResource | None, doc("Resource in Kafka's form, for names that end with `*` themselves.")
    ] = None
    host: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        doc("Client IP address that the rule applies to. Defaults to any."),
    ] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        exactly_one(
            "topic",
            "group",
            "transactionalId",
            "cluster",
            "resource",
            message="a rule is about one of topic, group, transactionalId, cluster and resource",
        ),
        exactly_one("allow", "deny", message="a rule has either allow or deny"),
        Rule(
            "!has(self.cluster) || self.cluster",
            "cluster can only be true",
            lambda value: value.get("cluster", True) is True,
            "cluster",
        ),
    )


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


class UserSpec(Model, frozen=True):
    """Desired state of the user."""

    cluster_ref: Annotated[ObjectRef, doc("Cluster that the user belongs to. Immutable.")]
    authentication: Annotated[Authentication, doc("How the user authenticates.")]
    user_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        doc(
            "Name that clients authenticate with: for SCRAM the user name, for TLS the certificate's CN, or its whole "
            "subject, such as CN=alice,O=example, for External the principal's name. Immutable. Defaults to "
            "metadata.name."
        ),
    ] = None
    secret_name: Annotated[
        ObjectName | None, doc("Secret that the credentials are written to. Defaults to metadata.name.")
    ] = None
    acls: Annotated[
        Annotated[list[AclRule], Meta(max_length=256)] | None,
        doc(
            "Access rules of the user, on clusters with authorization type ACL. Other rules of the user are removed. "
            "Without this field rules are left alone.",
            listed("atomic"),
        ),
    ] = None
    quotas: Annotated[
        Quotas | None,
        doc("Limits on the user's load. Other limits of the user are removed. Without this field they are left alone."),
    ] = None

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Transition(
            "self.clusterRef.name == oldSelf.clusterRef.name",
            "clusterRef is immutable; create a new User instead",
            lambda new, old: bool(new["clusterRef"]["name"] == old["clusterRef"]["name"]),
            "clusterRef",
        ),
        immutable("userName", "userName is immutable; create a new User instead"),
        immutable("secretName", "secretName is immutable; create a new User instead"),
    )


class UserCertificateStatus(Model, frozen=True):
    """The user's client certificate."""

    not_after: Annotated[Timestamp, doc("Time at which the certificate expires.")]
    renewal_time: Annotated[Timestamp, doc("Time from which the operator renews it.")]


class UserStatus(Status, frozen=True):
    """Observed state of the user."""

    user_name: Annotated[
        str | None, doc("Name of the user's principal on the brokers; for TLS made of the certificate's subject.")
    ] = None
    secret: Annotated[str | None, doc("Secret that holds the credentials.")] = None
    previous_credential_until: Annotated[
        Timestamp | None, doc("Time until which the password of the previous type stays valid.")
    ] = None
    certificate: Annotated[UserCertificateStatus | None, doc("Client certificate of a user with TLS.")] = None


class User(Resource, frozen=True):
    """A principal of a Cluster: credentials in a Secret, access rules and quotas."""

    kind: Literal["User"]
    spec: UserSpec
    status: UserStatus | None = None

    @property
    def user_name(self) -> str:
        return self.spec.user_name or self.metadata.name

    @property
    def secret_name(self) -> str:
        return self.spec.secret_name or self.metadata.name
