"""Topics as their resources wish them: see, let the plan decide, do."""

from collections.abc import Sequence

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.formatting import format_count
from ottla_operator.kafka import cluster, reassignment_inputs, reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.reassign import ImpossibleAssignment, change_replication_factor
from ottla_operator.plan.topics import (
    AddPartitions,
    AlterTopicConfig,
    ChangeReplicationFactor,
    CreateTopic,
    DeleteTopic,
    ObservedTopic,
    TopicChange,
    UnsatisfiableSpec,
)
from ottla_operator.resources.topic import Topic


async def observe_topics(link: KafkaClient, wanted: Sequence[Topic]) -> dict[str, ObservedTopic]:
    """Those of the wished topics that there are, by their names on the brokers. Settings, and what is moving, are asked for only where they are
    managed."""
    found = await topics.describe_topics(link, {it.topic_name for it in wanted})
    managed = [it.topic_name for it in wanted if it.spec.config is not None and it.topic_name in found]
    config = await topics.describe_topic_overrides(link, managed)
    moving: set[str] = set()
    brokers = 0
    if not all(_has_copies(it, found.get(it.topic_name)) for it in wanted):
        moving = {topic for topic, _ in await reassignments.list_reassignments(link)}
        brokers = len((await cluster.describe_cluster(link)).brokers)
    return {
        name: ObservedTopic(
            name,
            len(it.partitions),
            it.replication_factor,
            config.get(name, {}),
            str(it.id) if it.id else "",
            max((len(partition.replicas) for partition in it.partitions), default=0),
            name in moving,
            brokers,
        )
        for name, it in found.items()
    }


def _has_copies(wanted: Topic, found: topics.TopicDescription | None) -> bool:
    """Whether a topic has the copies that are wished, if any are: brokers count those that are still being made among the replicas."""
    if wanted.spec.replicas is None:
        return True
    return found is not None and all(len(it.isr) == len(it.replicas) == wanted.spec.replicas for it in found.partitions)


async def apply_topic_change(link: KafkaClient, change: TopicChange) -> None:
    """Does one change. KafkaError when the brokers refuse it. What is stuck is left to people."""
    match change:
        case CreateTopic():
            await topics.create_topic(link, change.name, change.partitions, change.replicas, change.config)
        case AddPartitions():
            await topics.create_partitions(link, change.name, change.partitions)
        case ChangeReplicationFactor():
            await _replicate(link, change)
        case AlterTopicConfig():
            await topics.alter_topic_config(link, change.name, change.to_set, change.to_unset)
        case DeleteTopic():
            await topics.delete_topic(link, change.name)
        case UnsatisfiableSpec():
            pass


async def _replicate(link: KafkaClient, change: ChangeReplicationFactor) -> None:
    """Returns when the brokers have taken it down; they copy meanwhile."""
    seen = await reassignment_inputs.read_reassignment_inputs(link)
    try:
        moves = change_replication_factor(seen.partitions, seen.brokers, {change.name}, change.replicas)
    except ImpossibleAssignment as error:  # a broker has fallen since we looked
        raise KafkaError(ErrorCode.invalid_replication_factor, str(error)) from error
    await reassignments.reassign_partitions(link, {(it.topic, it.partition): it.after for it in moves})


def describe_topic_change(change: TopicChange) -> str:
    """What a change does, in words."""
    match change:
        case CreateTopic():
            return f"topic {change.name} made"
        case AddPartitions():
            return f"topic {change.name} grown to {change.partitions} partitions"
        case ChangeReplicationFactor():
            return f"topic {change.name}: to {format_count(change.replicas, 'replica')}"
        case AlterTopicConfig():
            said = [
                *(f"{key}={value}" for key, value in change.to_set.items()),
                *(f"{key} back to default" for key in change.to_unset),
            ]
            return f"topic {change.name}: {', '.join(said)}"
        case DeleteTopic():
            return f"topic {change.name} deleted"
        case UnsatisfiableSpec():
            return f"topic {change.name}: {change.reason}"
