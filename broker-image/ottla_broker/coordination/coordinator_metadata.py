"""The view that group coordinators have of the cluster's metadata: topics and the configs of
groups."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from ottla_broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla_broker.wire.digests import compute_blake2b

MAX_SUBSCRIPTIONS: Final = 1000
"""Largest number of different subscriptions whose topic ids are cached. At the limit the cache is
emptied."""


class CoordinatorMetadata:
    """`version` grows when topics or partitions may have changed. While it is the same, a group
    need not compare them."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._ids_of_subscriptions: dict[tuple[str, ...], frozenset[UUID]] = {}  # in this version
        self.version = 1

    def on_topics_changed(self) -> None:
        self.version += 1
        self._ids_of_subscriptions.clear()

    def topic_names(self) -> Iterator[str]:
        return iter(self._image.topics)

    def topic_id(self, name: str) -> UUID | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id

    def topic_ids(self, names: Iterable[str]) -> frozenset[UUID]:
        """Ids of those topics that exist."""
        topics = self._image.topics
        return frozenset(topics[name].id for name in names if name in topics)

    def subscribed_topic_ids(self, names: tuple[str, ...]) -> frozenset[UUID]:
        """`topic_ids` of a subscription, cached because many members have the same one."""
        if (found := self._ids_of_subscriptions.get(names)) is None:
            if len(self._ids_of_subscriptions) >= MAX_SUBSCRIPTIONS:
                self._ids_of_subscriptions.clear()
            found = self._ids_of_subscriptions[names] = self.topic_ids(names)
        return found

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._image.topic_names.get(topic_id)

    def partition_count(self, topic_id: UUID) -> int:
        """0 for a topic that does not exist."""
        topic = self._image.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def partition_count_of(self, name: str) -> int | None:
        """None for a topic that does not exist."""
        topic = self._image.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def hash_topics(self, names: Iterable[str]) -> int:
        """A signed 64-bit hash of the ids and partition counts of those topics that exist; 0
        without any. It need not be the hash that Kafka computes: a different hash only makes the
        group compute its assignment again."""
        topics = self._image.topics
        existing = sorted(name for name in names if name in topics)
        if not existing:
            return 0
        parts = [topics[name].id.bytes + len(topics[name].partitions).to_bytes(4, "big") for name in existing]
        return int.from_bytes(compute_blake2b(b"".join(parts), 8), "big", signed=True)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """The configs that are set for this group (resource type GROUP)."""
        return self._image.configs.get((GROUP_RESOURCE, group_id), {})
