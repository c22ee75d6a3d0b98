"""Plans the changes that bring a topic to the spec of its Topic resource, and evaluates the
resource's conditions.

Invariants: after the changes are applied, planning again yields nothing, except unsatisfiable
fields and moves in progress. Partitions never decrease. Fields that the resource leaves out are not
changed. No topic is deleted and created again to satisfy a spec.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from ottla_operator.formatting import format_count
from ottla_operator.plan.conditions import Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.owners import oldest_owners
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.resources.topic import Topic

BROKER_DEFAULT = -1
"""Number of partitions or replicas that leaves it to the brokers (num.partitions,
default.replication.factor).
"""


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    """A topic on the brokers. `config`: values that are set on the topic itself. `replicas`: the
    fewest of any partition; `most_replicas`: the most of any, `replicas` if not given. `is_moving`:
    True if partitions are being reassigned. `brokers`: number of available brokers; 0 if it was not
    asked for.
    """

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str] = field(default_factory=dict)
    topic_id: str = ""
    most_replicas: int = 0
    is_moving: bool = False
    brokers: int = 0

    def has_replicas(self, count: int) -> bool:
        """True if every partition has this number of replicas."""
        return self.replicas == count >= self.most_replicas


@dataclass(frozen=True, slots=True)
class CreateTopic:
    event: ClassVar[str] = "TopicCreated"

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """`partitions`: the new total."""

    event: ClassVar[str] = "PartitionsAdded"

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ChangeReplicationFactor:
    event: ClassVar[str] = "ReplicationFactorChanged"

    name: str
    replicas: int


@dataclass(frozen=True, slots=True)
class AlterTopicConfig:
    """`to_unset`: settings for which the cluster's defaults apply again."""

    event: ClassVar[str] = "TopicConfigChanged"

    name: str
    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnsatisfiableSpec:
    """A field of the spec that cannot be satisfied before a person changes it or brokers start."""

    name: str
    field: str
    reason: str


TopicChange: TypeAlias = CreateTopic | AddPartitions | ChangeReplicationFactor | AlterTopicConfig
PlannedChange: TypeAlias = TopicChange | UnsatisfiableSpec


def plan_topic_changes(topic: Topic, observed: ObservedTopic | None) -> tuple[PlannedChange, ...]:
    """The changes that bring the topic to its spec, in this order; empty if none is needed."""
    name, spec = topic.topic_name, topic.spec
    if observed is None:
        return (CreateTopic(name, spec.partitions or BROKER_DEFAULT, spec.replicas or BROKER_DEFAULT, topic.config),)
    planned: list[PlannedChange] = []
    if spec.partitions is not None and spec.partitions > observed.partitions:
        planned.append(AddPartitions(name, spec.partitions))
    if spec.partitions is not None and spec.partitions < observed.partitions:
        reason = f"the topic has {observed.partitions} partitions and cannot shrink to {spec.partitions}"
        planned.append(UnsatisfiableSpec(name, "partitions", reason))
    if spec.replicas is not None and not observed.has_replicas(spec.replicas) and not observed.is_moving:
        if spec.replicas <= observed.brokers:
            planned.append(ChangeReplicationFactor(name, spec.replicas))
        else:
            up = f"{observed.brokers} {'is' if observed.brokers == 1 else 'are'} up"
            reason = f"{spec.replicas} replicas need as many brokers, and {up}"
            planned.append(UnsatisfiableSpec(name, "replicas", reason))
    if spec.config is not None and (change := _config_change(name, topic.config, observed.config)):
        planned.append(change)
    return tuple(planned)


def _config_change(name: str, desired: Mapping[str, str], observed: Mapping[str, str]) -> AlterTopicConfig | None:
    to_set = {key: value for key, value in desired.items() if not is_same_value(value, observed.get(key))}
    to_unset = tuple(sorted(set(observed) - set(desired)))
    return AlterTopicConfig(name, to_set, to_unset) if to_set or to_unset else None


def is_same_value(desired: str, observed: str | None) -> bool:
    """Brokers may return a value in another form: 1.0E-1 for 0.1, `delete,compact` without the
    blank.
    """
    if observed is None or desired == observed:
        return desired == observed
    try:
        return float(desired) == float(observed)
    except ValueError:
        return [it.strip() for it in desired.split(",")] == [it.strip() for it in observed.split(",")]


TopicResource: TypeAlias = StoredResource[Topic]


def topic_owners(resources: Iterable[TopicResource]) -> dict[str, TopicResource]:
    """Topic name → the resource that owns it, the oldest of several. Invalid resources own no
    topic.
    """
    return oldest_owners(resources, lambda it: it.parsed.topic_name if it.parsed else None)


def evaluate_topic(
    resource: TopicResource,
    observed: ObservedTopic | None,
    remaining: Sequence[PlannedChange],
    owners: Mapping[str, TopicResource],
) -> Readiness:
    """`remaining`: planned changes that are not applied yet. `owners`: needed only for resources
    that may own no topic.
    """
    name = resource.parsed.topic_name if resource.parsed else ""
    if (conflict := resource.find_conflict(owners.get(name), f"topic {name}")) is not None:
        return conflict
    if unsatisfiable := [it.reason for it in remaining if isinstance(it, UnsatisfiableSpec)]:
        return Stalled("InvalidSpec", "; ".join(unsatisfiable))
    if observed is None:
        return Reconciling("CreatingTopic", f"creating topic {name}")
    if remaining:
        return Reconciling("ChangingTopic", f"changing topic {name}")
    if observed.is_moving:
        return Reconciling("MovingPartitions", f"partitions of topic {name} are being reassigned")
    return Ready(f"topic {name} has {format_count(observed.partitions, 'partition')}.")
