"""Topics of Topic resources: observe the current state, and apply the changes that plan/topics.py decides."""

from collections.abc import Sequence

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.formatting import format_count
from ottla_operator.kafka import cluster, configs, reassignment_inputs, reassignments, topics
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


async def observe_topics(client: KafkaClient, desired: Sequence[Topic]) -> dict[str, ObservedTopic]:
    """Current state of the desired topics that exist, by name.

    Configurations and reassignments are requested only for topics whose resource sets them.
    """
    found = await topics.describe_topics(client, {topic.topic_name for topic in desired})
    with_config = [it.topic_name for it in desired if it.spec.config is not None and it.topic_name in found]
    overrides = await configs.describe_topic_overrides(client, with_config)
    reassigned: set[str] = set()
    brokers = 0
    if not all(_has_desired_replicas(topic, found.get(topic.topic_name)) for topic in desired):
        reassigned = {topic for topic, _ in await reassignments.list_reassignments(client)}
        brokers = len((await cluster.describe_cluster(client)).brokers)
    return {
        name: ObservedTopic(
            name,
            len(it.partitions),
            it.replication_factor,
            overrides.get(name, {}),
            str(it.id) if it.id else "",
            max((len(partition.replicas) for partition in it.partitions), default=0),
            name in reassigned,
            brokers,
        )
        for name, it in found.items()
    }


def _has_desired_replicas(desired: Topic, found: topics.TopicDescription | None) -> bool:
    """Whether all replicas are in sync and as many as desired. Replicas also include those that are being added."""
    replicas = desired.spec.replicas
    if replicas is None:
        return True
    return found is not None and all(len(it.isr) == len(it.replicas) == replicas for it in found.partitions)


async def apply_topic_change(client: KafkaClient, change: TopicChange) -> None:
    """Raises KafkaError if the brokers refuse the change."""
    match change:
        case CreateTopic():
            await topics.create_topic(client, change.name, change.partitions, change.replicas, change.config)
        case AddPartitions():
            await topics.create_partitions(client, change.name, change.partitions)
        case ChangeReplicationFactor():
            await _start_reassignment(client, change)
        case AlterTopicConfig():
            await configs.alter_topic_config(client, change.name, change.to_set, change.to_unset)
        case DeleteTopic():
            await topics.delete_topic(client, change.name)
        case UnsatisfiableSpec():
            pass


async def _start_reassignment(client: KafkaClient, change: ChangeReplicationFactor) -> None:
    inputs = await reassignment_inputs.read_reassignment_inputs(client)
    try:
        moves = change_replication_factor(inputs.partitions, inputs.brokers, {change.name}, change.replicas)
    except ImpossibleAssignment as error:  # a broker has failed since the topics were observed
        raise KafkaError(ErrorCode.invalid_replication_factor, str(error)) from error
    await reassignments.reassign_partitions(client, {(it.topic, it.partition): it.after for it in moves})


def describe_topic_change(change: TopicChange) -> str:
    """The change, for messages about it."""
    match change:
        case CreateTopic():
            return f"topic {change.name} created"
        case AddPartitions():
            return f"topic {change.name} increased to {change.partitions} partitions"
        case ChangeReplicationFactor():
            return f"topic {change.name}: reassigning to {format_count(change.replicas, 'replica')}"
        case AlterTopicConfig():
            settings = [
                *(f"{key}={value}" for key, value in change.to_set.items()),
                *(f"{key} reset to default" for key in change.to_unset),
            ]
            return f"topic {change.name}: {', '.join(settings)}"
        case DeleteTopic():
            return f"topic {change.name} deleted"
        case UnsatisfiableSpec():
            return f"topic {change.name}: {change.reason}"
