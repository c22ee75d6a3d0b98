"""Inputs of reassignment plans: brokers with their racks and nodes, partitions with their replicas
and sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.kafka import cluster, configs, log_dirs, reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignments import PartitionReassignment
from ottla_operator.plan.moves import PartitionReplicas


@dataclass(frozen=True, slots=True)
class ReassignmentInputs:
    """`brokers`: those that are up. `partitions`: replicas of every partition; for one that is
    being reassigned the target replicas. `fenced`: registered brokers that are down or not caught
    up; their nodes are unknown.
    """

    brokers: tuple[UsableBroker, ...]
    partitions: tuple[PartitionReplicas, ...]
    reassignments: Mapping[TopicPartition, PartitionReassignment]
    fenced: tuple[UsableBroker, ...] = ()

    @property
    def registered(self) -> tuple[UsableBroker, ...]:
        return self.brokers + self.fenced

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(it.broker for it in self.brokers)


async def read_reassignment_inputs(client: KafkaClient) -> ReassignmentInputs:
    registered = (await cluster.describe_cluster(client, include_fenced=True)).brokers
    brokers = [it for it in registered if not it.is_fenced]
    all_topics = await topics.list_topics(client)
    ongoing = await reassignments.list_reassignments(client)
    ids = [it.id for it in brokers]
    sizes = await log_dirs.describe_replica_sizes(client, ids)
    nodes = await configs.describe_nodes(client, ids)
    return ReassignmentInputs(
        tuple(UsableBroker(it.id, it.rack, nodes.get(it.id)) for it in brokers),
        tuple(
            _replicas(topic.name, it, ongoing.get((topic.name, it.index)), sizes)
            for topic in all_topics
            for it in topic.partitions
        ),
        ongoing,
        tuple(UsableBroker(it.id, it.rack) for it in registered if it.is_fenced),
    )


def _replicas(
    topic: str, info: topics.PartitionInfo, reassignment: PartitionReassignment | None, sizes: log_dirs.ReplicaSizes
) -> PartitionReplicas:
    """A partition with the size of its leader, otherwise with the largest that is known."""
    partition = topic, info.index
    replicas = reassignment.target if reassignment else info.replicas
    known = [sizes[broker].get(partition, 0) for broker in info.replicas if broker in sizes]
    leader_size = info.leader in sizes and sizes[info.leader].get(partition)
    return PartitionReplicas(*partition, replicas, info.isr, info.leader, leader_size or max(known, default=0))
