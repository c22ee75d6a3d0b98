"""The active controller: every change of the cluster's metadata is decided and committed here, one at a time.

A command looks at the image, asks a pure plan for records, commits them and returns when they are committed. The lock makes deciding and
committing one step, so no plan works from an image that another command is about to change.
"""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla_broker.metadata.image import Image
from ottla_broker.metadata.quorum import Quorum
from ottla_broker.metadata.records import (
    BrokerChange,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIds,
    RegisterBroker,
    TopicRecord,
)
from ottla_broker.metadata.topic_plans import NewTopic, creation, growth, removal
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

PRODUCER_ID_BLOCK = 1000


class Controller:
    """Commands raise KafkaError with the code that a client should see; with `validate_only` nothing is committed."""

    def __init__(self, image: Image, log: Quorum, runtime: Runtime) -> None:
        self._image = image
        self._log = log
        self._runtime = runtime
        self._turn = asyncio.Lock()

    async def register_broker(self, registration: RegisterBroker) -> int:
        """Registers and unfences a broker; returns its broker epoch."""
        async with self._turn:
            await self._log.commit([registration])
            epoch = self._image.brokers[registration.broker].epoch
            await self._log.commit([BrokerChange(registration.broker, epoch, fenced=False)])
            return epoch

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> UUID:
        async with self._turn:
            topic_id = self._runtime.new_uuid()
            records = creation(self._image, topic, topic_id)
            if not validate_only:
                await self._log.commit(records)
            return topic_id

    async def ensure_topic(self, topic: NewTopic) -> None:
        """Creates a topic that the broker itself needs, unless it is there."""
        if topic.name in self._image.topics:
            return
        try:
            await self.create_topic(topic)
        except KafkaError as reason:
            if reason.code is not ErrorCode.topic_already_exists:
                raise

    async def create_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        async with self._turn:
            records = growth(self._image, name, count, assignment)
            if not validate_only:
                await self._log.commit(records)

    async def delete_topic(self, name: str) -> None:
        async with self._turn:
            await self._log.commit(removal(self._image, name))

    async def alter_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Sets (or with None removes) keys of one resource. Values were validated by the caller against the table of settings."""
        async with self._turn:
            current = self._image.configs.get((resource_type, name), {})
            records: list[MetadataRecord] = [
                ConfigRecord(resource_type, name, key, value)
                for key, value in sorted(changes.items())
                if current.get(key) != value
            ]
            if records and not validate_only:
                await self._log.commit(records)

    async def allocate_producer_ids(self) -> range:
        """A block of ids that nobody else gets, ever."""
        async with self._turn:
            first = self._image.next_producer_id
            await self._log.commit([ProducerIds(first + PRODUCER_ID_BLOCK)])
            return range(first, first + PRODUCER_ID_BLOCK)

    async def adopt(self, broker: int, topics: Mapping[str, tuple[UUID, Mapping[int, int]]]) -> None:
        """Takes partition folders found on a first start into the metadata: name → (topic id, partition → latest leader epoch).

        The epoch is raised above the folder's, so that no client takes the new leader for an old one.
        """
        async with self._turn:
            records: list[MetadataRecord] = []
            for name, (topic_id, partitions) in sorted(topics.items()):
                records.append(TopicRecord(name, topic_id))
                records += [
                    PartitionRecord(
                        topic_id, partition, replicas=(broker,), isr=(broker,), leader=broker, leader_epoch=epoch + 1
                    )
                    for partition, epoch in sorted(partitions.items())
                ]
            if records:
                await self._log.commit(records)
