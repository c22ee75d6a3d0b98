"""What lies on the brokers' disks: bytes of each replica. A broker that does not answer is left out; what it holds is not known then."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition

WITHIN_S: Final = 10.0  # a broker that has stopped to answer must not keep the others' figures waiting

ReplicaSizes = Mapping[int, Mapping[TopicPartition, int]]
"""Broker → (topic, partition) → bytes. A broker that did not answer is not there."""


async def describe_replica_sizes(
    link: KafkaClient, brokers: Iterable[int], places: Iterable[TopicPartition] | None = None
) -> ReplicaSizes:
    """Of these partitions, or of all. A replica that is not there yet is left out."""
    ids = list(brokers)
    topics = None if places is None else _described(places)
    answers = await asyncio.gather(*(_of_broker(link, it, topics) for it in ids))
    return {id_: answer for id_, answer in zip(ids, answers, strict=True) if answer is not None}


def sum_by_topic(sizes: ReplicaSizes) -> dict[str, int]:
    """Bytes of each topic over all replicas."""
    found: dict[str, int] = defaultdict(int)
    for replicas in sizes.values():
        for (topic, _), size in replicas.items():
            found[topic] += size
    return dict(found)


async def _of_broker(
    link: KafkaClient, broker: int, topics: tuple[DescribableLogDirTopic, ...] | None
) -> dict[TopicPartition, int] | None:
    try:
        async with asyncio.timeout(WITHIN_S):
            answer = await link.ask(DescribeLogDirsRequest(topics=topics), broker=broker)
    except (Unreachable, TimeoutError):
        return None
    except KafkaError as error:
        if error.code is ErrorCode.broker_not_available:  # it has gone since its id was told
            return None
        raise
    found: dict[TopicPartition, int] = {}
    for folder in answer.results:
        raise_for_error(
            folder.error_code, None, f"log directory {folder.log_dir}", allow=(ErrorCode.kafka_storage_error,)
        )
        for topic in folder.topics:
            for it in topic.partitions:
                if not it.is_future_key:
                    found[topic.name, it.partition_index] = it.partition_size
    return found


def _described(places: Iterable[TopicPartition]) -> tuple[DescribableLogDirTopic, ...]:
    by_topic: dict[str, list[i32]] = defaultdict(list)
    for topic, partition in places:
        by_topic[topic].append(i32(partition))
    return tuple(
        DescribableLogDirTopic(topic=TopicName(topic), partitions=tuple(found)) for topic, found in by_topic.items()
    )
