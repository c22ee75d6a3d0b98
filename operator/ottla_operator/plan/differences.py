"""The changes that the operator, or `ottla up`, would make to brokers so that they match the
resources. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla_operator.formatting import format_count
from ottla_operator.plan.topics import (
    AddPartitions,
    AlterTopicConfig,
    ChangeReplicationFactor,
    CreateTopic,
    ObservedTopic,
    UnsatisfiableSpec,
    is_same_value,
    plan_topic_changes,
)
from ottla_operator.plan.users import DesiredUser, ObservedUser, describe_changes, plan_user_changes
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.topic import Topic

DEFAULT: Final = "the brokers' default"


@dataclass(frozen=True, slots=True)
class Difference:
    """`field`: path in the spec. `current`: empty where nothing exists, and where `desired` alone
    says what changes. `is_possible`: False for what will be refused, for the reason in `desired`.
    """

    field: str
    current: str
    desired: str
    is_possible: bool = True


def topic_differences(topic: Topic, observed: ObservedTopic | None) -> list[Difference]:
    """The changes of a topic. `observed`: None if the topic does not exist."""
    found: list[Difference] = []
    for change in plan_topic_changes(topic, observed):
        match change:
            case CreateTopic():
                partitions = format_count(change.partitions, "partition") if change.partitions > 0 else DEFAULT
                replicas = format_count(change.replicas, "replica") if change.replicas > 0 else DEFAULT
                found.append(Difference("topic", "", f"created: {partitions}, {replicas}"))
                found += [Difference(f"config.{key}", "", value) for key, value in change.config.items()]
            case AddPartitions():
                found.append(
                    Difference("partitions", str(observed.partitions if observed else 0), str(change.partitions))
                )
            case ChangeReplicationFactor():
                found.append(Difference("replicas", str(observed.replicas if observed else 0), str(change.replicas)))
            case AlterTopicConfig():
                before = observed.config if observed else {}
                found += [
                    Difference(f"config.{key}", before.get(key, DEFAULT), value) for key, value in change.to_set.items()
                ]
                found += [Difference(f"config.{key}", before.get(key, ""), DEFAULT) for key in change.to_unset]
            case UnsatisfiableSpec():
                found.append(Difference(change.field, "", change.reason, is_possible=False))
    return found


def user_differences(desired: DesiredUser, observed: ObservedUser, *, has_acls: bool) -> list[Difference]:
    """Without changed passwords, which nobody can read from brokers. `has_acls`: True if the
    brokers have an authorizer, or will have one with the spec of their Cluster.
    """
    found: list[Difference] = []
    if desired.acls and not has_acls:
        desired = replace(desired, acls=None)
        reason = "the brokers have no authorizer without authorization.type ACL of the Cluster"
        found.append(Difference("acls", "", reason, is_possible=False))
    changes = plan_user_changes(desired, observed)
    return [*found, *([Difference("user", "", describe_changes(changes))] if changes else [])]


def cluster_differences(
    cluster: Cluster, brokers: Collection[int], configs: Mapping[int, Mapping[str, str | None]]
) -> list[Difference]:
    """`brokers`: ids of those that are registered and not fenced. `configs`: by broker, its
    settings; None for a value that brokers do not return, which is not compared.
    """
    found: list[Difference] = []
    if len(brokers) != cluster.spec.replicas:
        found.append(Difference("replicas", str(len(brokers)), str(cluster.spec.replicas)))
    for key, value in cluster.config.items():
        values = {it[key] for it in configs.values() if it.get(key) is not None}
        if other := sorted(it for it in values if it is not None and not is_same_value(value, it)):
            found.append(Difference(f"config.{key}", ", ".join(other), value))
    return found
