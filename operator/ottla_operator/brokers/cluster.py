"""The cluster as a whole: its brokers, and whether all is well with its partitions."""

from dataclasses import dataclass

from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse

from ottla_operator.brokers.link import Link
from ottla_operator.brokers.topics import Topic


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """`controller`: -1 when there is none, or none that the brokers tell."""

    id: str | None
    controller: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class Ailment:
    """What is wrong with a partition: it is offline (nobody leads it) or has fewer replicas in sync than it should."""

    topic: str
    partition: int
    what: str
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


async def describe(link: Link) -> Cluster:
    answer: MetadataResponse = await link.ask(
        MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    )
    brokers = tuple(
        Broker(it.node_id, it.host, it.port, it.rack) for it in sorted(answer.brokers, key=lambda it: it.node_id)
    )
    return Cluster(answer.cluster_id, answer.controller_id, brokers)


def ailments(topics: list[Topic]) -> list[Ailment]:
    """Every partition with which something is wrong; pure."""
    return [
        Ailment(
            topic.name, it.index, "offline" if it.leader < 0 else "under-replicated", it.leader, it.isr, it.replicas
        )
        for topic in topics
        for it in topic.partitions
        if it.leader < 0 or len(it.isr) < len(it.replicas)
    ]
