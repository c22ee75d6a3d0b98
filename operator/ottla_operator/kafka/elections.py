"""Having partitions led by their preferred replica, or, where nobody in sync is left, by one that is not."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Final

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import PartitionResult
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, error_text, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.topics import TopicDescription

TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))


class ElectionType(IntEnum):
    """The protocol's numbers. `preferred`: the first replica, if it is in sync. `unclean`: any replica that lives, where nobody leads; records that only
    others have are lost."""

    preferred = 0
    unclean = 1


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """`refused`: why no leader was elected, in words; empty when one was, or the right one leads already."""

    topic: str
    partition: int
    error: str
    needed: bool


def find_partitions_to_elect(topics: Iterable[TopicDescription], election: ElectionType) -> list[TopicPartition]:
    """Partitions that an election would change: not led by the preferred replica, which is in sync; or led by nobody. Pure."""
    if election is ElectionType.unclean:
        return [(topic.name, it.index) for topic in topics for it in topic.partitions if it.leader < 0]
    return [
        (topic.name, it.index)
        for topic in topics
        for it in topic.partitions
        if it.replicas and it.leader != it.replicas[0] and it.replicas[0] in it.isr
    ]


async def elect_leaders(
    link: KafkaClient, election: ElectionType, places: Iterable[TopicPartition]
) -> list[ElectionResult]:
    """One outcome for each partition, in order."""
    by_topic: dict[str, list[i32]] = defaultdict(list)
    for topic, partition in sorted(places):
        by_topic[topic].append(i32(partition))
    if not by_topic:
        return []
    request = ElectLeadersRequest(
        election_type=i8(election),
        topic_partitions=tuple(
            TopicPartitions(topic=TopicName(topic), partitions=tuple(found)) for topic, found in by_topic.items()
        ),
        timeout=TIMEOUT,
    )
    answer = await link.ask_controller(request)
    raise_for_error(answer.error_code, None, "election")
    return sorted(
        (_outcome(topic.topic, it) for topic in answer.replica_election_results for it in topic.partition_result),
        key=lambda it: (it.topic, it.partition),
    )


async def elect_preferred_leaders(link: KafkaClient, places: Iterable[TopicPartition]) -> None:
    """Lets the preferred replicas of these partitions lead where they can; where they cannot, the brokers' own balancing does it later."""
    try:
        await elect_leaders(link, ElectionType.preferred, places)
    except KafkaError as error:
        if error.code not in (ErrorCode.unknown_topic_or_partition, ErrorCode.unsupported_version):
            raise


def _outcome(topic: str, told: PartitionResult) -> ElectionResult:
    code = told.error_code
    good = code in (ErrorCode.none, ErrorCode.election_not_needed)
    refused = "" if good else told.error_message or error_text(code)
    return ElectionResult(topic, told.partition_id, refused, code is not ErrorCode.election_not_needed)
