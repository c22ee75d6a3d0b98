"""Offsets of partitions: log start, log end, and by timestamp (ListOffsets)."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kio.static.primitive import i32

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import build_list_offsets
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.topics import TopicDescription

TopicPartition = tuple[str, int]


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[i32]]:
    grouped: dict[str, list[i32]] = defaultdict(list)
    for topic, partition in partitions:
        grouped[topic].append(i32(partition))
    return dict(grouped)


async def list_offsets(
    client: KafkaClient, topics: Iterable[TopicDescription], time_ms: int
) -> dict[TopicPartition, int]:
    """Offset of every partition that has a leader, without those whose leader has just changed.
    Raises Unreachable if a leader is not reachable; KafkaError for another error of a partition.

    `time_ms`: LATEST_TIMESTAMP for the log end, EARLIEST_TIMESTAMP for the log start, or a
    timestamp: the offset of the first record at or after it, −1 if there is none.
    """
    by_leader = _partitions_by_leader(topics)
    answers = await asyncio.gather(
        *(_list_offsets_of_leader(client, leader, partitions, time_ms) for leader, partitions in by_leader.items())
    )
    return {partition: offset for answer in answers for partition, offset in answer.items()}


async def require_offsets(client: KafkaClient, topic: TopicDescription, time_ms: int) -> dict[TopicPartition, int]:
    """Like `list_offsets`, of every partition of the topic. Raises KafkaError if one has no leader,
    or its leader has just changed.
    """
    found = await list_offsets(client, [topic], time_ms)
    for partition in topic.partitions:
        if (topic.name, partition.index) not in found:
            name = f"partition {topic.name}-{partition.index}"
            if partition.leader < 0:
                raise KafkaError(ErrorCode.leader_not_available, f"{name} has no leader")
            raise KafkaError(
                ErrorCode.not_leader_or_follower, f"{name} has another leader than broker {partition.leader}"
            )
    return found


async def list_reachable_offsets(
    client: KafkaClient, topics: Iterable[TopicDescription], time_ms: int
) -> dict[TopicPartition, int]:
    """Like `list_offsets`, but omits the partitions of leaders that are not reachable."""
    found: dict[TopicPartition, int] = {}
    for leader, partitions in _partitions_by_leader(topics).items():
        with contextlib.suppress(Unreachable):
            found |= await _list_offsets_of_leader(client, leader, partitions, time_ms)
    return found


def _partitions_by_leader(topics: Iterable[TopicDescription]) -> dict[int, list[TopicPartition]]:
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader >= 0:
                by_leader[partition.leader].append((topic.name, partition.index))
    return by_leader


async def _list_offsets_of_leader(
    client: KafkaClient, leader: int, partitions: Iterable[TopicPartition], time_ms: int
) -> Mapping[TopicPartition, int]:
    request = build_list_offsets(partitions, time_ms)
    found: dict[TopicPartition, int] = {}
    for topic in (await client.send(request, broker=leader)).topics:
        for partition in topic.partitions:
            # A partition whose leader has just changed is omitted; callers that poll will see it.
            if partition.error_code not in (ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition):
                raise_for_error(partition.error_code, None, f"partition {topic.name}-{partition.partition_index}")
                found[topic.name, partition.partition_index] = partition.offset
    return found
