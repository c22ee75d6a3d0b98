"""Invalid responses of a source cluster."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla_broker.mirroring.source_cluster import (
    ORIGINS,
    SOURCES,
    MirroredAtSource,
    OriginReader,
    SourceMetadata,
    SourceTopic,
    describe_mirrored_topic,
    fetch_mirrored_at_source,
)
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError

ID = UUID(int=7)
VIEW = SourceMetadata("there", {}, {"t": SourceTopic("t", ID, {0: 1})}, frozenset())


@dataclass
class Source:
    """A source that describes its mirrored topics. `configs`: topic → its configs."""

    configs: dict[str, dict[str, str]]

    async def send(self, _: Any) -> SimpleNamespace:
        results = [
            SimpleNamespace(
                resource_name=topic,
                error_message=None,
                error_code=ErrorCode.none,
                configs=[SimpleNamespace(name=name, value=value) for name, value in message.items()],
            )
            for topic, message in self.configs.items()
        ]
        return SimpleNamespace(results=results)


def source(configs: dict[str, dict[str, str]]) -> Client:
    return cast(Client, Source(configs))


@pytest.mark.parametrize("sources", ["{", '[{"of": "another version"}]'])
def test_invalid_sources_are_an_error_with_the_topic_name(sources: str) -> None:
    with pytest.raises(KafkaError, match="cannot parse the sources of topic 't'"):
        asyncio.run(OriginReader(source({"t": {ORIGINS: "a", SOURCES: sources}})).add_origins(VIEW, ["t"]))


def test_topics_that_were_not_requested_are_ignored() -> None:
    seen = asyncio.run(OriginReader(source({"t": {ORIGINS: "a"}, "u": {ORIGINS: "b"}})).add_origins(VIEW, ["t"]))
    assert {name: topic.origins for name, topic in seen.topics.items()} == {"t": {"a"}}


def test_invalid_topic_id_is_ignored() -> None:
    good, bad = (
        describe_mirrored_topic("m", "t", ID, failed_over=True),
        describe_mirrored_topic("m", "u", ID, failed_over=True),
    )
    configs = {"t": good, "u": {**bad, "source.topic.id": "?"}}
    assert asyncio.run(fetch_mirrored_at_source(source(configs), ["t", "u"])) == {"t": MirroredAtSource("m", ID, True)}
