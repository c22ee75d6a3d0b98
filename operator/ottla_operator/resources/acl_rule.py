"""An access rule in the specs of Users and AccessPolicies."""

from typing import Annotated, Literal

from msgspec import Meta

from ottla_operator.resources.model import Json, Model, Rule, doc, exactly_one, listed


class AclResource(Model, frozen=True):
    """Resource that an access rule applies to."""

    type: Annotated[Literal["Topic", "Group", "Cluster", "TransactionalId", "User"], doc("Type of the Kafka resource.")]
    name: Annotated[
        Annotated[str, Meta(max_length=249)] | None,
        doc(
            "Name of the resource, or '*' for all. For type User: its principal, such as User:billing. Not set for "
            "type Cluster."
        ),
    ] = None
    pattern: Annotated[
        Literal["Literal", "Prefixed"] | None,
        doc("Literal: name is the whole name. Prefixed: name is a prefix. Defaults to Literal."),
    ] = None

    rules = (
        Rule(
            "(self.type == 'Cluster') != has(self.name)",
            "every type but Cluster needs a name ('*' for all); Cluster has none",
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
    "CreateTokens",
    "DescribeTokens",
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

    rules = (
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


AclRules = Annotated[list[AclRule], Meta(max_length=256)]


def is_about_cluster(rule: dict[str, Json]) -> bool:
    """`rule`: an access rule as plain JSON."""
    return "cluster" in rule or rule.get("resource", {}).get("type") == "Cluster"
