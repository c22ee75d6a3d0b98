"""The state of mirrored partitions, collected from all brokers."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from ottla_operator.kafka import cluster, mirrors, topics
from ottla_operator.kafka.client import KafkaClient, Unreachable
from ottla_operator.kafka.topics import PartitionInfo, TopicDescription
from ottla_operator.plan.mirror import UNREPORTED
from tests.unit.async_tests import async_test

LEADERS = {0: 1, 1: 2, 2: -1}  # by partition of the topics `copy` and `appended`
SOURCE_PARTITIONS = 2  # of the source of `appended`; the topic `appended` itself has three


class FakeBrokers:
    """Brokers 1 and 2. Broker 2 does not respond while `silent`."""

    def __init__(self) -> None:
        self.silent = False

    async def send(self, request: Any, *, broker: int) -> SimpleNamespace:
        if self.silent and broker == 2:
            raise Unreachable("no answer")
        return SimpleNamespace(results=[self._result(it.resource_name, broker) for it in request.resources])

    def _result(self, topic: str, broker: int) -> SimpleNamespace:
        values = {"mirror": "west", "source.topic": "t"} if topic == "copy" else {}
        if topic == "copy":
            state = json.dumps({"state": "Replicating", "end": 5, "lag": 0})
            values |= {str(index): state for index, leader in LEADERS.items() if leader == broker}
        if topic == "appended":
            own = {index for index, leader in LEADERS.items() if leader == broker and index < SOURCE_PARTITIONS}
            values = {"west/source.topic": "s", "west/source.partitions": str(SOURCE_PARTITIONS)}
            values |= {f"west/{index}": json.dumps({"state": "Replicating", "end": 5}) for index in own}
        configs = [SimpleNamespace(name=name, value=value) for name, value in values.items()]
        return SimpleNamespace(resource_name=topic, error_code=0, error_message=None, configs=configs)


@pytest.fixture
def brokers() -> Iterator[FakeBrokers]:
    def topic(name: str, leaders: dict[int, int]) -> TopicDescription:
        parts = tuple(PartitionInfo(index, leader, 0, (1, 2), (1, 2), ()) for index, leader in leaders.items())
        return TopicDescription(name, None, False, parts)

    async def all_topics(_: KafkaClient) -> list[TopicDescription]:
        return [topic("copy", LEADERS), topic("other", {0: 1}), topic("appended", LEADERS)]

    async def describe(_: KafkaClient) -> SimpleNamespace:
        return SimpleNamespace(brokers=[SimpleNamespace(id=1), SimpleNamespace(id=2)])

    with mock.patch.object(topics, "list_topics", all_topics), mock.patch.object(cluster, "describe_cluster", describe):
        yield FakeBrokers()


async def describe_states(brokers: FakeBrokers) -> dict[tuple[str, int], str]:
    return {
        (it.topic, it.partition): it.state
        for it in await mirrors.describe_mirrored_partitions(cast(KafkaClient, brokers), "west")
    }


@async_test
async def test_partition_that_no_broker_reports_is_included_as_unreported(brokers: FakeBrokers) -> None:
    copied = {("copy", 0): "Replicating", ("copy", 1): "Replicating", ("copy", 2): UNREPORTED}
    copied |= {("appended", 0): "Replicating", ("appended", 1): "Replicating"}
    assert await describe_states(brokers) == copied, "copy-2 has no leader; appended-2 gets no records of the source"
    brokers.silent = True
    assert await describe_states(brokers) == copied | {("copy", 1): UNREPORTED, ("appended", 1): UNREPORTED}
