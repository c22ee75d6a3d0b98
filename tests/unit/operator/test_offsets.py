"""Offsets of a topic's partitions, also if some partitions have no leader."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import LATEST_TIMESTAMP
from ottla_operator.cli import bench, resume
from ottla_operator.cli.resume import ExistingRecords, PartitionCounts
from ottla_operator.kafka import offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.producer import Producer
from ottla_operator.kafka.topics import PartitionInfo, TopicDescription

END = 7


class FakeClient:
    """Brokers return END for each partition, and an error for those in `moved`, whose leader has
    changed."""

    def __init__(self, moved: Collection[int] = ()) -> None:
        self.moved = moved

    async def send(self, request: Any, broker: int) -> SimpleNamespace:
        found = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=it.partition_index,
                        offset=END,
                        error_code=ErrorCode.not_leader_or_follower if it.partition_index in self.moved else 0,
                    )
                    for it in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=found)


def describe(*leaders: int) -> TopicDescription:
    partitions = (PartitionInfo(index, leader, 0, (1, 2), (1,), ()) for index, leader in enumerate(leaders))
    return TopicDescription("t", None, False, tuple(partitions))


def test_offsets_of_every_partition_are_required() -> None:
    client = cast(KafkaClient, FakeClient())
    found = asyncio.run(offsets.require_offsets(client, describe(1, 2), LATEST_TIMESTAMP))
    assert found == {("t", 0): END, ("t", 1): END}
    for moved, leaders, message in (
        ((), (1, -1), "partition t-1 has no leader"),
        ((0,), (2, 1), "partition t-0 has another leader than broker 2"),
    ):
        with pytest.raises(KafkaError, match=message):
            asyncio.run(
                offsets.require_offsets(cast(KafkaClient, FakeClient(moved)), describe(*leaders), LATEST_TIMESTAMP)
            )


def test_benchmark_and_resumed_load_name_a_partition_without_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def describe_topic(*_: object) -> TopicDescription:
        return describe(1, -1)

    async def count_partitions(_: str) -> int:
        return 2

    monkeypatch.setattr(topics, "describe_topic", describe_topic)
    monkeypatch.setattr(resume, "DELIVERY_TIMEOUT_S", -1)
    client = cast(KafkaClient, FakeClient())
    with pytest.raises(KafkaError, match="partition t-1 has no leader"):
        asyncio.run(bench._list_offsets(client, "t", LATEST_TIMESTAMP))
    producer = cast(Producer, SimpleNamespace(count_partitions=count_partitions))
    existing = ExistingRecords(client, producer, if_empty=False, partition_counts=PartitionCounts(None))
    with pytest.raises(KafkaError, match="partition t-1 has no leader"):
        asyncio.run(existing.prepare("t"))
