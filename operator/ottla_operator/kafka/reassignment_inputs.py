"""What plans of reassignment are made from: brokers with their racks, partitions with their replicas and sizes, and what is moving already."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.metadata.placement import UsableBroker as BrokerPlace
from ottla_operator.kafka import cluster, log_dirs, reassignments, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignments import PartitionReassignment
from ottla_operator.plan.moves import PartitionReplicas


@dataclass(frozen=True, slots=True)
class ReassignmentInputs:
    """`brokers`: those that are up. `partitions`: of all topics, the brokers' own too; one that is moving counts as if it had arrived."""

    brokers: tuple[BrokerPlace, ...]
    partitions: tuple[PartitionReplicas, ...]
    reassignments: Mapping[TopicPartition, PartitionReassignment]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(it.broker for it in self.brokers)


async def read_reassignment_inputs(link: KafkaClient) -> ReassignmentInputs:
    brokers = (await cluster.describe_cluster(link)).brokers
    every = await topics.list_topics(link)
    moving = await reassignments.list_reassignments(link)
    sizes = await log_dirs.describe_replica_sizes(link, [it.id for it in brokers])
    return ReassignmentInputs(
        tuple(BrokerPlace(it.id, it.rack) for it in brokers),
        tuple(
            _replicas(topic.name, it, moving.get((topic.name, it.index)), sizes)
            for topic in every
            for it in topic.partitions
        ),
        moving,
    )


def _replicas(
    topic: str, it: topics.PartitionInfo, moving: PartitionReassignment | None, sizes: log_dirs.ReplicaSizes
) -> PartitionReplicas:
    replicas = moving.target if moving else it.replicas
    known = [sizes[broker].get((topic, it.index), 0) for broker in it.replicas if broker in sizes]
    leads = it.leader in sizes and sizes[it.leader].get((topic, it.index))
    return PartitionReplicas(topic, it.index, replicas, it.isr, it.leader, leads or max(known, default=0))
