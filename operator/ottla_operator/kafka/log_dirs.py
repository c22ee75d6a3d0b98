"""Size of replicas on the brokers' disks (DescribeLogDirs). Brokers that do not respond and log
directories that have failed are omitted.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.types import TopicName

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import BROKER_TIMEOUT_S, KafkaClient, Unreachable, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition, group_by_topic

ReplicaSizes = Mapping[int, Mapping[TopicPartition, int]]
"""Broker → (topic, partition) → bytes."""


async def describe_replica_sizes(
    client: KafkaClient, brokers: Iterable[int], partitions: Iterable[TopicPartition] | None = None
) -> ReplicaSizes:
    """Sizes of the replicas of these partitions, or of all, on these brokers."""
    topics = None
    if partitions is not None:
        topics = tuple(
            DescribableLogDirTopic(topic=TopicName(topic), partitions=tuple(indexes))
            for topic, indexes in group_by_topic(partitions).items()
        )
    ids = list(brokers)
    answers = await asyncio.gather(*(_describe_broker(client, it, topics) for it in ids))
    return {broker: answer for broker, answer in zip(ids, answers, strict=True) if answer is not None}


def sum_by_topic(sizes: ReplicaSizes) -> dict[str, int]:
    """Bytes of each topic over all replicas."""
    totals: dict[str, int] = defaultdict(int)
    for replicas in sizes.values():
        for (topic, _), size in replicas.items():
            totals[topic] += size
    return dict(totals)


async def _describe_broker(
    client: KafkaClient, broker: int, topics: tuple[DescribableLogDirTopic, ...] | None
) -> dict[TopicPartition, int] | None:
    """Sizes of the broker's replicas; None if it does not respond."""
    try:
        async with asyncio.timeout(BROKER_TIMEOUT_S):
            response = await client.send(DescribeLogDirsRequest(topics=topics), broker=broker)
    except (Unreachable, TimeoutError):
        return None
    except KafkaError as error:
        if error.code is ErrorCode.broker_not_available:  # it left after its id was listed
            return None
        raise
    sizes: dict[TopicPartition, int] = {}
    for result in response.results:
        subject = f"log directory {result.log_dir}"
        raise_for_error(result.error_code, None, subject, allow=(ErrorCode.kafka_storage_error,))
        for topic in result.topics:
            for replica in topic.partitions:
                if not replica.is_future_key:
                    sizes[topic.name, replica.partition_index] = replica.partition_size
    return sizes
