"""The pages of topics: the list, and one topic with its partitions and configs."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config.description import ConfigEntry, ConfigSource, describe_topic
from ottla_broker.console.cluster_requests import (
    UNKNOWN,
    ClusterRequests,
    Failures,
    PartitionOffsets,
    merge_failures,
)
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.topic_list import find_topics, make_page
from ottla_broker.metadata.image import TopicImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource

PARTITIONS_PER_PAGE: Final = 200
NO_OFFSETS: Final = PartitionOffsets()
ReplicaSizes = dict[tuple[int, int], int]
"""Bytes by partition and broker."""
SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker, dynamic",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster, dynamic",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's settings",
    ConfigSource.DEFAULT_CONFIG: "default",
}


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """`size`: as `size_of`."""

    index: int
    state: PartitionRecord
    offsets: PartitionOffsets
    size: int

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(one for one in self.state.replicas if one not in self.state.isr)


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A config of a topic. `is_own`: it is set for the topic itself."""

    name: str
    value: str
    source: str
    doc: str
    is_own: bool

    @classmethod
    def of(cls, entry: ConfigEntry) -> "ConfigRow":
        source = SOURCES.get(entry.source, entry.source.name)
        is_own = entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        return cls(entry.name, entry.value or "", source, entry.doc or "", is_own)


class TopicPages:
    """Users see the topics that they may describe."""

    def __init__(self, broker: Broker, requests: ClusterRequests) -> None:
        self._broker = broker
        self._requests = requests

    async def show_list(self, page: PageRequest) -> web.Response:
        search, with_internal = page.text("search"), page.flag("internal")
        names = await find_topics(
            self._broker.image, search, lambda name: may_describe_topic(page, name), with_internal=with_internal
        )
        topics = make_page(self._broker.image, names, page.integer("page", 1, at_least=1))
        template = "topic_rows.html" if page.wants_fragment else "topics.html"
        return page.render(template, topics=topics, search=search, with_internal=with_internal)

    async def show_topic(self, page: PageRequest) -> web.Response:
        """Leaves out offsets and sizes of brokers that do not respond. Sizes need DESCRIBE on the
        cluster, as DescribeLogDirs does.
        """
        topic = self.find_topic(page)
        number = page.integer("page", 1, at_least=1)
        indexes = sorted(topic.partitions)[(number - 1) * PARTITIONS_PER_PAGE : number * PARTITIONS_PER_PAGE]
        states = {index: topic.partitions[index] for index in indexes}
        (sizes, size_failures), (offsets, offset_failures) = await asyncio.gather(
            self.find_sizes(page, topic.name, states), self._requests.find_partition_offsets(topic.name, states)
        )
        rows = [
            PartitionRow(index, state, offsets.get(index, NO_OFFSETS), size_of(index, state, sizes))
            for index, state in states.items()
        ]
        return page.render(
            "topic.html",
            topic=topic,
            rows=rows,
            page_number=number,
            last_page=max(1, -(-len(topic.partitions) // PARTITIONS_PER_PAGE)),
            configs=self._configs(page, topic.name),
            mirror=self._broker.image.active_mirror(topic.id),
            failures=merge_failures(size_failures, offset_failures),
            total_bytes=sum(sizes.values()) if sizes and len(rows) == len(topic.partitions) else UNKNOWN,
        )

    def find_topic(self, page: PageRequest) -> TopicImage:
        """The topic of the path. Raises PageError, the same for a topic that does not exist and for
        one that the user may not describe.
        """
        name = page.http.match_info["topic"]
        topic = self._broker.image.topics.get(name)
        if topic is None or not may_describe_topic(page, name):
            raise PageError(404, f"There is no topic {name!r} that {page.user.principal} may describe.")
        return topic

    async def find_sizes(
        self, page: PageRequest, topic: str, states: Mapping[int, PartitionRecord]
    ) -> tuple[ReplicaSizes, Failures]:
        """Bytes of the partitions' replicas; empty if the user may not describe the cluster."""
        if not page.user.may(Operation.describe, CLUSTER):
            return {}, ()
        return await self._requests.find_topic_replica_bytes(topic, states)

    def _configs(self, page: PageRequest, topic: str) -> list[ConfigRow] | None:
        """The topic's configs, first those that are set for the topic itself. None if the user may
        not describe them.
        """
        if not page.user.may(Operation.describe_configs, Resource.topic(topic)):
            return None
        entries = describe_topic(self._broker.config, self._broker.image.topic_config(topic))
        return sorted(map(ConfigRow.of, entries), key=lambda it: (not it.is_own, it.name))


def may_describe_topic(page: PageRequest, topic: str) -> bool:
    return page.user.may(Operation.describe, Resource.topic(topic))


def size_of(index: int, state: PartitionRecord, sizes: ReplicaSizes) -> int:
    """Bytes of the leader's replica, or else of the largest; −1: unknown."""
    of_leader = sizes.get((index, state.leader))
    if of_leader is not None:
        return of_leader
    return max((sizes.get((index, one), UNKNOWN) for one in state.replicas), default=UNKNOWN)
