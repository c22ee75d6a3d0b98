"""The cluster as a whole: its brokers, its controller, and whether all is well with its partitions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignments import PartitionReassignment
from ottla_operator.kafka.topics import TopicDescription

OFFLINE: Final = "offline"
UNDER_REPLICATED: Final = "under-replicated"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """`fenced`: it is registered, and away or not in step: it leads nothing."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller`: -1 when there is none, or none that the brokers tell."""

    id: str | None
    controller: int
    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class PartitionProblem:
    """`what` is wrong with a partition: OFFLINE (nobody leads it), or UNDER_REPLICATED (a replica is not in sync)."""

    topic: str
    partition: int
    kind: str
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


async def describe_cluster(link: KafkaClient) -> ClusterDescription:
    """Brokers that are up."""
    answer: MetadataResponse = await link.ask(
        MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    )
    brokers = tuple(
        BrokerInfo(it.node_id, it.host, it.port, it.rack) for it in sorted(answer.brokers, key=lambda it: it.node_id)
    )
    return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)


async def describe_cluster_with_fenced_brokers(link: KafkaClient) -> ClusterDescription:
    """Fenced brokers too, where the brokers tell of them."""
    answer = await link.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    )
    raise_for_error(answer.error_code, answer.error_message, "cluster")
    brokers = tuple(
        BrokerInfo(it.broker_id, it.host, it.port, it.rack, it.is_fenced)
        for it in sorted(answer.brokers, key=lambda it: it.broker_id)
    )
    return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)


async def unregister_broker(link: KafkaClient, broker: int) -> None:
    """Forgets a broker that has been stopped for good. KafkaError when there is none of this id."""
    answer = await link.ask_controller(UnregisterBrokerRequest(broker_id=BrokerId(broker)))
    raise_for_error(answer.error_code, answer.error_message, f"broker {broker}")


def find_partition_problems(
    topics: Iterable[TopicDescription], moving: Mapping[TopicPartition, PartitionReassignment] | None = None
) -> list[PartitionProblem]:
    """Every partition with which something is wrong. A replica that is being added does not have to be in sync yet. Pure."""
    found: list[PartitionProblem] = []
    for topic in topics:
        for it in topic.partitions:
            move = (moving or {}).get((topic.name, it.index))
            behind = set(it.replicas) - set(it.isr) - set(move.adding if move else ())
            if it.leader < 0 or behind:
                what = OFFLINE if it.leader < 0 else UNDER_REPLICATED
                found.append(PartitionProblem(topic.name, it.index, what, it.leader, it.isr, it.replicas))
    return found
