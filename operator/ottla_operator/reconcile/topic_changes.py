"""Observes topics on the brokers for the plan in `plan/topics.py`, and applies its changes."""

from collections.abc import Sequence

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.formatting import format_count
from ottla_operator.kafka import configs, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import describe_cluster
from ottla_operator.kafka.reassignment_inputs import read_reassignment_inputs
from ottla_operator.kafka.reassignments import list_reassignments, reassign_partitions
from ottla_operator.plan.reassign import ImpossibleAssignment, change_replication_factor
from ottla_operator.plan.topics import (
    AddPartitions,
    AlterTopicConfig,
    ChangeReplicationFactor,
    CreateTopic,
    ObservedTopic,
    TopicChange,
)
from ottla_operator.resources.topic import Topic


async def observe_topics(client: KafkaClient, desired: Sequence[Topic]) -> dict[str, ObservedTopic]:
    """Observes those of the topics that exist, by name. Configs and reassignments are requested
    only where specs manage them.
    """
    found = await topics.describe_topics(client, {it.topic_name for it in desired})
    managed = [it.topic_name for it in desired if it.spec.config is not None and it.topic_name in found]
    overrides = await configs.describe_topic_overrides(client, managed)
    moving: set[str] = set()
    broker_count = 0
    if not all(_has_desired_replicas(it, found.get(it.topic_name)) for it in desired):
        moving = {topic for topic, _ in await list_reassignments(client)}
        broker_count = len((await describe_cluster(client)).brokers)
    return {
        name: ObservedTopic(
            name,
            len(it.partitions),
            it.replication_factor,
            overrides.get(name, {}),
            str(it.id) if it.id else "",
            max((len(partition.replicas) for partition in it.partitions), default=0),
            name in moving,
            broker_count,
        )
        for name, it in found.items()
    }


def _has_desired_replicas(topic: Topic, description: topics.TopicDescription | None) -> bool:
    """True if the spec asks for no number of replicas, or all of them exist and are in sync:
    brokers also list replicas that are still being added."""
    replicas = topic.spec.replicas
    if replicas is None:
        return True
    return description is not None and all(len(it.isr) == len(it.replicas) == replicas for it in description.partitions)


async def apply_topic_change(client: KafkaClient, change: TopicChange) -> None:
    """Raises KafkaError if the brokers reject the change."""
    match change:
        case CreateTopic():
            await topics.create_topic(client, change.name, change.partitions, change.replicas, change.config)
        case AddPartitions():
            await topics.create_partitions(client, change.name, change.partitions)
        case ChangeReplicationFactor():
            await _change_replication_factor(client, change)
        case AlterTopicConfig():
            await configs.alter_topic_config(client, change.name, change.to_set, change.to_unset)


async def _change_replication_factor(client: KafkaClient, change: ChangeReplicationFactor) -> None:
    """Returns when the controller has accepted the reassignment; brokers copy in the background."""
    inputs = await read_reassignment_inputs(client)
    try:
        moves = change_replication_factor(
            inputs.partitions, inputs.brokers, {change.name}, change.replicas, registered=inputs.registered
        )
    except ImpossibleAssignment as error:  # a broker has failed since the topic was observed
        raise KafkaError(ErrorCode.invalid_replication_factor, str(error)) from error
    await reassign_partitions(client, {(it.topic, it.partition): it.after for it in moves})


def describe_topic_change(change: TopicChange) -> str:
    """The event's message for a change that was applied."""
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
