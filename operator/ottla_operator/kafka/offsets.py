"""Where partitions begin and end, and which offset belongs to a time."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.list_offsets.v8.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.topics import TopicDescription

LATEST: Final = -1
EARLIEST: Final = -2
TopicPartition = tuple[str, int]
"""(topic, partition)"""


async def list_offsets(
    link: KafkaClient, topics: Iterable[TopicDescription], time_ms: int
) -> dict[TopicPartition, int]:
    """For every partition that has a leader: its end (LATEST), its start (EARLIEST), or the first record at or after a time (-1 when
    there is none). Milliseconds since the epoch. Unreachable when one of the leaders does not answer."""
    by_leader = _by_leader(topics)
    answers = await asyncio.gather(*(_ask(link, leader, wanted, time_ms) for leader, wanted in by_leader.items()))
    return {place: offset for answer in answers for place, offset in answer.items()}


async def list_reachable_offsets(
    link: KafkaClient, topics: Iterable[TopicDescription], time_ms: int
) -> dict[TopicPartition, int]:
    """As `offsets`; leaders that do not answer, because they have just fallen, are left out."""
    found: dict[TopicPartition, int] = {}
    for leader, wanted in _by_leader(topics).items():
        with contextlib.suppress(Unreachable):
            found |= await _ask(link, leader, wanted, time_ms)
    return found


def _by_leader(topics: Iterable[TopicDescription]) -> dict[int, dict[str, list[int]]]:
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader >= 0:
                by_leader[partition.leader][topic.name].append(partition.index)
    return by_leader


async def _ask(
    link: KafkaClient, leader: int, wanted: Mapping[str, list[int]], time_ms: int
) -> dict[TopicPartition, int]:
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    ListOffsetsPartition(partition_index=i32(it), timestamp=i64(time_ms)) for it in partitions
                ),
            )
            for topic, partitions in wanted.items()
        ),
    )
    found: dict[TopicPartition, int] = {}
    for topic in (await link.ask(request, broker=leader)).topics:
        for it in topic.partitions:
            # A leader that has just changed is asked again by whoever polls; for now its partition is not told.
            if it.error_code not in (ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition):
                raise_for_error(it.error_code, None, f"partition {topic.name}-{it.partition_index}")
                found[topic.name, it.partition_index] = it.offset
    return found
