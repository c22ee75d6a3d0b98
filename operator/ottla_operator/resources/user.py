"""User: a principal of a cluster, with credentials, access rules and quotas."""

from typing import Annotated, Literal

from msgspec import Meta

from ottla_operator.resources.acl_rule import AclRules, is_about_cluster
from ottla_operator.resources.common import (
    Duration,
    ObjectName,
    ObjectRef,
    Resource,
    SecretKeyRef,
    Status,
    Tenant,
    Timestamp,
    tenant_prefix,
)
from ottla_operator.resources.model import Model, Rule, doc, immutable, immutable_cluster_ref, listed


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

    rules = (
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
    tenant: Annotated[
        Tenant | None,
        doc(
            "Tenant that the user belongs to. Names in its rules, and its own name unless it is External, begin with "
            "it: TENANT.NAME. Without acls and aclsFrom the user may do everything with the tenant's topics, groups "
            "and transactional ids. Immutable."
        ),
    ] = None
    secret_name: Annotated[
        ObjectName | None, doc("Secret that the credentials are written to. Defaults to metadata.name.")
    ] = None
    acls: Annotated[
        AclRules | None,
        doc(
            "Access rules of the user, on clusters with authorization type ACL. Other rules of the user are removed. "
            "If none of acls, aclsFrom and tenant is set, rules are left alone.",
            listed("atomic"),
        ),
    ] = None
    acls_from: Annotated[
        Annotated[list[ObjectRef], Meta(max_length=32)] | None,
        doc(
            "AccessPolicies whose rules the user has too. Other rules of the user are removed. While one of them does "
            "not exist, is being deleted or is invalid, the user has what the others and acls allow, and every denial "
            "that it had.",
            listed("map", "name"),
        ),
    ] = None
    quotas: Annotated[
        Quotas | None,
        doc("Limits on the user's load. Other limits of the user are removed. Without this field they are left alone."),
    ] = None

    rules = (
        immutable_cluster_ref("clusterRef is immutable; create a new User instead"),
        Rule(
            "!has(self.tenant) || !has(self.acls) || self.acls.all(it, !has(it.cluster) && (!has(it.resource) || "
            "it.resource.type != 'Cluster'))",
            "a user of a tenant has no rules about the cluster, because they would show other tenants",
            lambda spec: "tenant" not in spec or not any(map(is_about_cluster, spec.get("acls") or ())),
            "acls",
        ),
        Rule(
            "!has(self.tenant) || !has(self.userName) || !self.userName.contains('=')",
            "the userName of a user of a tenant cannot be a certificate's subject",
            lambda spec: "tenant" not in spec or "=" not in spec.get("userName", ""),
            "userName",
        ),
        immutable("tenant", "tenant is immutable; create a new User instead"),
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
        str | None, doc("Name of the user's principal on the brokers; for TLS derived from the certificate's subject.")
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
        prefix = tenant_prefix(self.spec.tenant) if self.spec.authentication.type != "External" else ""
        return prefix + (self.spec.user_name or self.metadata.name)

    @property
    def secret_name(self) -> str:
        return self.spec.secret_name or self.metadata.name
