"""Reassignment of partitions (KIP-455): start, list, cancel, progress."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32Timedelta

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka import log_dirs
from ottla_operator.kafka.client import KafkaClient, none_on_error, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition, group_by_topic
from ottla_operator.kafka.topics import describe_topics

TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))
MAX_PARTITIONS_PER_REQUEST: Final = 500
"""The controller handles one request at a time. Thousands of partitions in one would delay all
others.
"""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """`replicas`: all, including those in `adding` and `removing`."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas when the reassignment is complete."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


async def list_reassignments(client: KafkaClient) -> dict[TopicPartition, PartitionReassignment]:
    """Ongoing reassignments. Empty if the brokers do not support them (Kafka before 2.4)."""
    request = ListPartitionReassignmentsRequest(timeout=TIMEOUT, topics=None)
    response = await none_on_error(client.send_to_controller(request), ErrorCode.unsupported_version)
    if response is None:
        return {}
    raise_for_error(response.error_code, response.error_message, "reassignments")
    return {
        (topic.name, it.partition_index): PartitionReassignment(
            tuple(it.replicas), tuple(it.adding_replicas), tuple(it.removing_replicas)
        )
        for topic in response.topics
        for it in topic.partitions
    }


async def reassign_partitions(client: KafkaClient, replicas: Mapping[TopicPartition, Iterable[int]]) -> None:
    """Starts the reassignment of partitions to these replicas, the preferred leader first.

    Raises KafkaError for the first partition that is refused.
    """
    await _alter(client, {partition: tuple(map(BrokerId, brokers)) for partition, brokers in replicas.items()})


async def cancel_reassignments(client: KafkaClient, partitions: Iterable[TopicPartition]) -> None:
    """Reverts partitions to their previous replicas. Partitions whose reassignment is complete are
    not changed.
    """
    await _alter(client, dict.fromkeys(partitions))


async def _alter(client: KafkaClient, replicas: Mapping[TopicPartition, tuple[BrokerId, ...] | None]) -> None:
    partitions = list(replicas)
    for start in range(0, len(partitions), MAX_PARTITIONS_PER_REQUEST):
        by_topic = group_by_topic(partitions[start : start + MAX_PARTITIONS_PER_REQUEST])
        request = AlterPartitionReassignmentsRequest(
            timeout=TIMEOUT,
            topics=tuple(
                ReassignableTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        ReassignablePartition(partition_index=index, replicas=replicas[topic, index])
                        for index in indexes
                    ),
                )
                for topic, indexes in by_topic.items()
            ),
        )
        response = await client.send_to_controller(request)
        raise_for_error(response.error_code, response.error_message, "reassignment")
        for topic in response.responses:
            for partition in topic.partitions:
                subject, ended = f"{topic.name}-{partition.partition_index}", (ErrorCode.no_reassignment_in_progress,)
                raise_for_error(partition.error_code, partition.error_message, subject, allow=ended)


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    """Progress of the reassignment of `partitions` partitions.

    `unfinished`: number of partitions that are still being reassigned. `copied_bytes`,
    `total_bytes`: of those. `misplaced`: existing partitions that do not have the target
    replicas; empty while any is being reassigned.
    """

    partitions: int
    unfinished: int
    copied_bytes: int
    total_bytes: int
    misplaced: tuple[TopicPartition, ...]


async def measure_progress(
    client: KafkaClient, targets: Mapping[TopicPartition, tuple[int, ...]]
) -> ReassignmentProgress:
    """Measures how far reassignments have come. `targets`: replicas that each partition is
    reassigned to.
    """
    listed = await list_reassignments(client)
    ongoing = {partition: it for partition, it in listed.items() if partition in targets}
    brokers = sorted({broker for it in ongoing.values() for broker in it.replicas})
    sizes = await log_dirs.describe_replica_sizes(client, brokers, ongoing) if ongoing else {}
    copied, total = copied_bytes(ongoing, sizes)
    misplaced: list[TopicPartition] = []
    if not ongoing:
        topics = await describe_topics(client, sorted({topic for topic, _ in targets}))
        current = {(topic.name, it.index): it.replicas for topic in topics.values() for it in topic.partitions}
        misplaced = sorted(it for it, target in targets.items() if it in current and set(current[it]) != set(target))
    return ReassignmentProgress(len(targets), len(ongoing), copied, total, tuple(misplaced))


def copied_bytes(
    reassignments: Mapping[TopicPartition, PartitionReassignment], sizes: log_dirs.ReplicaSizes
) -> tuple[int, int]:
    """Bytes that the added replicas have, and bytes that they will have: the size of the largest
    other replica.
    """
    copied = total = 0
    for partition, reassignment in reassignments.items():
        others = (broker for broker in reassignment.replicas if broker in sizes and broker not in reassignment.adding)
        size = max((sizes[broker].get(partition, 0) for broker in others), default=0)
        for broker in reassignment.adding:
            copied += min(size, sizes.get(broker, {}).get(partition, 0))
            total += size
    return copied, total
