"""What plans of reassignment are made from: brokers with their racks, partitions with their replicas and sizes, and what is moving already."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.metadata.placement import Place as BrokerPlace
from ottla_operator.brokers import cluster, log_dirs, reassignments, topics
from ottla_operator.brokers.link import Link
from ottla_operator.brokers.offsets import Place
from ottla_operator.brokers.reassignments import Ongoing
from ottla_operator.plan.moves import Replicas


@dataclass(frozen=True, slots=True)
class Placing:
    """`brokers`: those that are up. `partitions`: of all topics, the brokers' own too; one that is moving counts as if it had arrived."""

    brokers: tuple[BrokerPlace, ...]
    partitions: tuple[Replicas, ...]
    ongoing: Mapping[Place, Ongoing]

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(it.broker for it in self.brokers)


async def observe(link: Link) -> Placing:
    brokers = (await cluster.describe(link)).brokers
    every = await topics.all_topics(link)
    moving = await reassignments.ongoing(link)
    sizes = await log_dirs.replica_sizes(link, [it.id for it in brokers])
    return Placing(
        tuple(BrokerPlace(it.id, it.rack) for it in brokers),
        tuple(
            _replicas(topic.name, it, moving.get((topic.name, it.index)), sizes)
            for topic in every
            for it in topic.partitions
        ),
        moving,
    )


def _replicas(topic: str, it: topics.Partition, moving: Ongoing | None, sizes: log_dirs.Sizes) -> Replicas:
    replicas = moving.target if moving else it.replicas
    known = [sizes[broker].get((topic, it.index), 0) for broker in it.replicas if broker in sizes]
    leads = it.leader in sizes and sizes[it.leader].get((topic, it.index))
    return Replicas(topic, it.index, replicas, it.isr, it.leader, leads or max(known, default=0))
