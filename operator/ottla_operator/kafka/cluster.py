"""The cluster as a whole: brokers, controller, and the health of its partitions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from ottla_operator.kafka import configs, quorum
from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignments import PartitionReassignment
from ottla_operator.kafka.topics import TopicDescription, list_topics
from ottla_operator.plan.roll import PartitionState, metadata_log_state

OFFLINE: Final = "offline"
UNDER_REPLICATED: Final = "under-replicated"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """`is_fenced`: registered, but it may not lead partitions, because it is down or not caught
    up.
    """

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller`: −1 while the broker that answered knows none."""

    id: str | None
    controller: int
    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class PartitionProblem:
    """`kind`: OFFLINE (no leader) or UNDER_REPLICATED (a replica is not in sync)."""

    topic: str
    partition: int
    kind: str
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


async def describe_cluster(client: KafkaClient, *, include_fenced: bool = False) -> ClusterDescription:
    """`include_fenced`: include fenced brokers, which old versions do not report. Raises
    KafkaError.
    """
    response = await client.send(
        DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced)
    )
    raise_for_error(response.error_code, response.error_message, "cluster")
    brokers = sorted(
        (BrokerInfo(it.broker_id, it.host, it.port, it.rack, it.is_fenced) for it in response.brokers),
        key=lambda it: it.id,
    )
    return ClusterDescription(response.cluster_id, response.controller_id, tuple(brokers))


async def list_broker_ids(client: KafkaClient) -> list[int]:
    """Ids of the brokers that are not fenced, in ascending order. Raises KafkaError."""
    return [broker.id for broker in (await describe_cluster(client)).brokers]


async def unregister_broker(client: KafkaClient, broker: int) -> None:
    """Removes the registration of a broker that is stopped for good. Raises KafkaError if it is not
    registered.
    """
    response = await client.send_to_controller(UnregisterBrokerRequest(broker_id=BrokerId(broker)))
    raise_for_error(response.error_code, response.error_message, f"broker {broker}")


def find_partition_problems(
    topics: Iterable[TopicDescription],
    reassignments: Mapping[TopicPartition, PartitionReassignment] | None = None,
) -> list[PartitionProblem]:
    """Offline and under-replicated partitions. A replica that is being added need not be in
    sync.
    """
    problems: list[PartitionProblem] = []
    for topic in topics:
        for partition in topic.partitions:
            reassignment = (reassignments or {}).get((topic.name, partition.index))
            behind = set(partition.replicas) - set(partition.isr) - set(reassignment.adding if reassignment else ())
            if partition.leader < 0 or behind:
                kind = OFFLINE if partition.leader < 0 else UNDER_REPLICATED
                problems.append(
                    PartitionProblem(
                        topic.name, partition.index, kind, partition.leader, partition.isr, partition.replicas
                    )
                )
    return problems


async def list_partition_states(client: KafkaClient) -> list[PartitionState]:
    """ISR of every partition and of the metadata log, from which a rolling restart is planned.

    Raises KafkaError or Unreachable while there is no controller.
    """
    topics = await list_topics(client)
    min_isr = await configs.describe_min_isr(client, [topic.name for topic in topics])
    states = [
        PartitionState(topic.name, it.index, it.replicas, it.isr, min_isr[topic.name])
        for topic in topics
        for it in topic.partitions
    ]
    if (log := await quorum.describe_quorum(client)) is not None:
        voters = [replica for replica in log.replicas if replica.is_voter]
        in_sync = [voter.broker for voter in voters if voter.is_in_sync]
        states.insert(0, metadata_log_state(quorum.METADATA_LOG, [it.broker for it in voters], in_sync))
    return states
