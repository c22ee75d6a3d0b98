"""What to do so that a topic becomes what its Topic resource wishes.

Invariants: applying the changes and asking again yields nothing more to do (but what is stuck stays stuck, and what moves is left to move); partitions never fall; nothing
is said about what the resource leaves out; a topic is never deleted and made anew to fulfil a wish.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla_operator.resources.topic import Topic

BROKERS_CHOICE = -1
"""Number of partitions or replicas that leaves it to the brokers (num.partitions, default.replication.factor)."""


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    """A topic as the brokers have it. `config`: only what is set on the topic itself. `replicas`: the fewest of any partition. `most_replicas`: the most
    of any, as many as `replicas` when not given. `moving`: whether partitions are being moved. `brokers`: how many are up."""

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str] = field(default_factory=dict)
    topic_id: str = ""
    most_replicas: int = 0
    moving: bool = False
    brokers: int = 0

    def has_replicas(self, wanted: int) -> bool:
        """Whether every partition has so many."""
        return self.replicas == wanted >= self.most_replicas


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make the topic."""

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Add partitions, to `partitions` in all."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ChangeReplicationFactor:
    """Give every partition so many replicas."""

    name: str
    replicas: int


@dataclass(frozen=True, slots=True)
class AlterTopicConfig:
    """Set the settings in `put`, and take those in `drop` off the topic, so that the cluster's defaults hold again."""

    name: str
    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete the topic with all its records."""

    name: str


@dataclass(frozen=True, slots=True)
class UnsatisfiableSpec:
    """The wish cannot be fulfilled; a person has to change it. `field`: the one of the spec that is in the way."""

    name: str
    field: str
    reason: str


TopicChange: TypeAlias = (
    CreateTopic | AddPartitions | ChangeReplicationFactor | AlterTopicConfig | DeleteTopic | UnsatisfiableSpec
)


def changes(wanted: Topic, seen: ObservedTopic | None) -> tuple[TopicChange, ...]:
    """What is to be done, in this order; empty when the topic is as wished."""
    name, spec = wanted.topic_name, wanted.spec
    if seen is None:
        return (CreateTopic(name, spec.partitions or BROKERS_CHOICE, spec.replicas or BROKERS_CHOICE, wanted.config),)
    found: list[TopicChange] = []
    if spec.partitions is not None and spec.partitions > seen.partitions:
        found.append(AddPartitions(name, spec.partitions))
    if spec.partitions is not None and spec.partitions < seen.partitions:
        found.append(
            UnsatisfiableSpec(
                name, "partitions", f"the topic has {seen.partitions} partitions and cannot shrink to {spec.partitions}"
            )
        )
    if spec.replicas is not None and not seen.has_replicas(spec.replicas) and not seen.moving:
        if spec.replicas <= seen.brokers:
            found.append(ChangeReplicationFactor(name, spec.replicas))
        else:
            why = f"{spec.replicas} replicas need as many brokers, and {seen.brokers} {'is' if seen.brokers == 1 else 'are'} up"
            found.append(UnsatisfiableSpec(name, "replicas", why))
    if spec.config is not None and (change := _configure(name, wanted.config, seen.config)):
        found.append(change)
    return tuple(found)


def after_removal(wanted: Topic, seen: ObservedTopic | None) -> tuple[TopicChange, ...]:
    """What is to be done when the resource itself is gone."""
    if seen is not None and wanted.spec.deletion_policy == "Delete":
        return (DeleteTopic(seen.name),)
    return ()


def _configure(name: str, wanted: Mapping[str, str], seen: Mapping[str, str]) -> AlterTopicConfig | None:
    put = {key: value for key, value in wanted.items() if not _same(value, seen.get(key))}
    drop = tuple(sorted(set(seen) - set(wanted)))
    return AlterTopicConfig(name, put, drop) if put or drop else None


def _same(wanted: str, seen: str | None) -> bool:
    """Brokers may write a value back in another form: 1.0E-1 for 0.1, `delete,compact` without the blank."""
    if seen is None or wanted == seen:
        return wanted == seen
    try:
        return float(wanted) == float(seen)
    except ValueError:
        return [part.strip() for part in wanted.split(",")] == [part.strip() for part in seen.split(",")]
