"""What becomes of a topic whose resource is taken out of the files of `ottla up`."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast
from unittest import mock

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import topic_reconciler
from ottla_operator.kafka.client import KafkaClient, Unreachable
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.topics import Topics
from ottla_operator.plan.topics import DeleteTopic, ObservedTopic, TopicChange
from ottla_operator.resources.topic import Topic
from tests.unit.operator import samples
from tests.unit.operator.loop import on_loop


class Brokers:
    """`trouble`: what they answer instead, each once, the last first."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.trouble: list[Exception] = []

    async def observe(self, _: KafkaClient, wanted: Sequence[Topic]) -> dict[str, ObservedTopic]:
        if self.trouble:
            raise self.trouble.pop()
        return {it.topic_name: ObservedTopic(it.topic_name, 1, 1) for it in wanted if it.topic_name in self.there}

    async def apply(self, _: KafkaClient, change: TopicChange) -> None:
        if isinstance(change, DeleteTopic):
            if self.trouble:
                raise self.trouble.pop()
            self.there.remove(change.name)


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    made = Brokers("flights", "sums")
    with mock.patch.multiple(topic_reconciler, observe_topics=made.observe, apply_topic_change=made.apply):
        yield made


def topic(name: str, **spec: Any) -> Topic:
    return Topic.parse(samples.topic(name, deletionPolicy="Delete", **spec))


async def kept(
    brokers: Brokers,
    before: Sequence[Topic],
    after: Sequence[Topic],
    until: Callable[[list[str]], bool],
    trouble: Sequence[Exception] = (),
) -> list[str]:
    """What was said when it has come about. `trouble`: what the brokers answer first."""
    said: list[str] = []
    news = asyncio.Event()

    def say(text: str, kind: str) -> None:
        said.append(text)
        news.set()

    topics = Topics("demo", LiveView(say=say), tuple(before))
    topics.counted.set()
    keeping = asyncio.create_task(topics.keep(cast(KafkaClient, None)))
    await topics.settled.wait()
    brokers.trouble = list(trouble)
    topics.want(tuple(after), {})
    async with asyncio.timeout(10):
        while not until(said):
            news.clear()
            await news.wait()
    keeping.cancel()
    return said


@on_loop
async def test_it_goes_when_the_brokers_can_be_asked_again(brokers: Brokers) -> None:
    before, trouble = [topic("flights"), topic("sums")], [KafkaError(ErrorCode.not_controller), Unreachable("gone")]
    said = await kept(brokers, before, [topic("sums")], bool, trouble)
    assert said == ["topic flights deleted"]
    assert brokers.there == {"sums"}


@on_loop
async def test_what_the_brokers_refuse_for_good_is_told_once_and_stays(brokers: Brokers) -> None:
    trouble = [KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")]
    said = await kept(brokers, [topic("flights")], [], bool, trouble)
    assert not brokers.trouble
    assert said == ["topic flights stays: delete.topic.enable is false"]


@on_loop
async def test_a_topic_that_another_resource_speaks_of_now_stays(brokers: Brokers) -> None:
    other = topic("renamed", topicName="flights")
    await kept(brokers, [topic("flights"), topic("sums")], [other], lambda said: "sums" not in brokers.there)
    assert brokers.there == {"flights"}
