"""Giving partitions other replicas (KIP-455): asking for it, seeing how far it is, taking it back."""

from collections import defaultdict
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
from kio.static.primitive import i32, i32Timedelta

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition

TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))
AT_ONCE: Final = (
    500  # partitions of one request: thousands in one would hold up everything else that the controller has to do
)


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that is being moved. `replicas`: all, those that come and those that go among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(it for it in self.replicas if it not in self.removing)


async def list_reassignments(link: KafkaClient) -> dict[TopicPartition, PartitionReassignment]:
    """Every partition that is being moved now. Brokers that do not know of moving (Kafka before 2.4) move nothing."""
    try:
        answer = await link.ask_controller(ListPartitionReassignmentsRequest(timeout=TIMEOUT, topics=None))
    except KafkaError as error:
        if error.code is ErrorCode.unsupported_version:
            return {}
        raise
    raise_for_error(answer.error_code, answer.error_message, "reassignments")
    return {
        (topic.name, it.partition_index): PartitionReassignment(
            tuple(it.replicas), tuple(it.adding_replicas), tuple(it.removing_replicas)
        )
        for topic in answer.topics
        for it in topic.partitions
    }


async def reassign_partitions(link: KafkaClient, wanted: Mapping[TopicPartition, Iterable[int]]) -> None:
    """Has partitions moved to these replicas, the preferred leader first. Returns when the controller has taken it down; moving goes on. KafkaError for
    the first partition that is refused."""
    await _alter(link, {place: tuple(map(BrokerId, replicas)) for place, replicas in wanted.items()})


async def cancel_reassignments(link: KafkaClient, places: Iterable[TopicPartition]) -> None:
    """Takes moves back: the partitions get the replicas that they had. One that has arrived meanwhile is left there."""
    await _alter(link, dict.fromkeys(places))


async def _alter(link: KafkaClient, wanted: Mapping[TopicPartition, tuple[BrokerId, ...] | None]) -> None:
    places = list(wanted)
    for start in range(0, len(places), AT_ONCE):
        by_topic: dict[str, list[ReassignablePartition]] = defaultdict(list)
        for topic, partition in places[start : start + AT_ONCE]:
            by_topic[topic].append(
                ReassignablePartition(partition_index=i32(partition), replicas=wanted[topic, partition])
            )
        request = AlterPartitionReassignmentsRequest(
            timeout=TIMEOUT,
            topics=tuple(
                ReassignableTopic(name=TopicName(topic), partitions=tuple(found)) for topic, found in by_topic.items()
            ),
        )
        answer = await link.ask_controller(request)
        raise_for_error(answer.error_code, answer.error_message, "reassignment")
        for topic in answer.responses:
            for it in topic.partitions:
                raise_for_error(
                    it.error_code,
                    it.error_message,
                    f"{topic.name}-{it.partition_index}",
                    allow=(ErrorCode.no_reassignment_in_progress,),
                )
