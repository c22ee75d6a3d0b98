"""Leader elections (ElectLeaders): preferred, or unclean for partitions without a leader."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Final

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import PartitionResult
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32Timedelta

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka.client import KafkaClient, error_text, none_on_error, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition, group_by_topic
from ottla_operator.kafka.topics import TopicDescription

TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))


class ElectionType(IntEnum):
    """`preferred`: the first replica, if it is in sync. `unclean`: any live replica of a partition
    without a leader; records that the new leader does not have are lost.
    """

    preferred = 0
    unclean = 1


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """`error` is empty if a leader was elected, or if no election was needed."""

    topic: str
    partition: int
    error: str


def find_partitions_to_elect(topics: Iterable[TopicDescription], election: ElectionType) -> list[TopicPartition]:
    """Partitions that an election would change.

    For preferred: the preferred replica is in sync and does not lead. For unclean: there is no
    leader.
    """
    if election is ElectionType.unclean:
        return [(topic.name, it.index) for topic in topics for it in topic.partitions if it.leader < 0]
    return [
        (topic.name, it.index)
        for topic in topics
        for it in topic.partitions
        if it.replicas and it.leader != it.replicas[0] and it.replicas[0] in it.isr
    ]


async def elect_leaders(
    client: KafkaClient, election: ElectionType, partitions: Iterable[TopicPartition]
) -> list[ElectionResult]:
    """Elects leaders of these partitions. Returns results sorted by partition. Raises KafkaError if
    the request is refused as a whole.
    """
    by_topic = group_by_topic(sorted(partitions))
    if not by_topic:
        return []
    request = ElectLeadersRequest(
        election_type=i8(election),
        topic_partitions=tuple(
            TopicPartitions(topic=TopicName(topic), partitions=tuple(indexes)) for topic, indexes in by_topic.items()
        ),
        timeout=TIMEOUT,
    )
    response = await client.send_to_controller(request)
    raise_for_error(response.error_code, None, "election")
    return sorted(
        (_result(topic.topic, it) for topic in response.replica_election_results for it in topic.partition_result),
        key=lambda it: (it.topic, it.partition),
    )


async def elect_preferred_leaders(client: KafkaClient, partitions: Iterable[TopicPartition]) -> None:
    """Elects preferred leaders where they are in sync. Elsewhere the controller's leader balancing
    does it later, unless auto.leader.rebalance.enable is false.
    """
    election = elect_leaders(client, ElectionType.preferred, partitions)
    await none_on_error(election, ErrorCode.unknown_topic_or_partition, ErrorCode.unsupported_version)


def _result(topic: str, result: PartitionResult) -> ElectionResult:
    code = result.error_code
    succeeded = code in (ErrorCode.none, ErrorCode.election_not_needed)
    error = "" if succeeded else result.error_message or error_text(code)
    return ElectionResult(topic, result.partition_id, error)
