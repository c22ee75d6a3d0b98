"""All that this broker copies from other clusters: the partitions that it leads whose topics are copies, by mirror.

What decides is the image alone: who leads, of which mirror a topic is a copy, what that mirror's settings say, and whether the copy is stopped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.metadata.image import MIRROR_RESOURCE, MIRRORED_TOPIC_RESOURCE, Changes, Image
from ottla_broker.metadata.mirror_plans import Report, known_partition
from ottla_broker.mirroring.copying import Copy
from ottla_broker.mirroring.filling import Filling
from ottla_broker.mirroring.links import Link, link
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.wire.errors import ErrorCode, KafkaError

Ask = Callable[[Any], Awaitable[Any]]
SET = i8(0)


class Mirrors:
    """`ask` brings a request to the active controller."""

    def __init__(self, me: int, image: Image, partitions: Partitions, ask: Ask) -> None:
        self._me = me
        self._image = image
        self._partitions = partitions
        self._ask = ask
        self._fillings: dict[str, Filling] = {}
        self._closing: dict[asyncio.Task[None], None] = {}

    def copies(self) -> Iterator[tuple[Link, Copy]]:
        """What is being copied here."""
        for filling in self._fillings.values():
            for copy in filling.copies.values():
                yield filling.link, copy

    def led(self, partition: Partition) -> None:
        """This broker leads it, in an epoch that is new."""
        self._forget(partition)
        self._consider(partition)

    def lost(self, partition: Partition) -> None:
        self._forget(partition)

    def follow(self, changes: Changes) -> None:
        for kind, name in changes.configs:
            if kind == MIRROR_RESOURCE:
                self._reset(name)
        for name in changes.mirrored:
            self._consider_topic(name)

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._fillings.values()), *self._closing, return_exceptions=True)
        self._fillings.clear()

    def _reset(self, name: str) -> None:
        """Its settings are others: its connections are made anew."""
        before = self._fillings.get(name)
        if before is not None and before.link == link(self._image, name):
            return
        if before is not None:
            del self._fillings[name]
            task = asyncio.get_running_loop().create_task(before.close())
            self._closing[task] = None
            task.add_done_callback(self._closing.pop)
        for topic in self._image.mirrored.values():
            if topic.mirror == name:
                self._consider_topic(self._image.topic_names[topic.topic])

    def _consider_topic(self, name: str) -> None:
        for index in self._image.topics[name].partitions if name in self._image.topics else ():
            if (partition := self._partitions.get(name, index)) is not None:
                self._consider(partition)

    def _consider(self, partition: Partition) -> None:
        """Copies it, or does not any more."""
        topic = self._image.closed(partition.topic_id)
        settings = None if topic is None else link(self._image, topic.mirror)
        known = known_partition(self._image, partition.topic_id, partition.partition)
        if topic is None or settings is None or not (partition.leads and settings.replicates) or known.stopped:
            self._forget(partition)
            return
        filling = self._fillings.get(topic.mirror)
        if filling is None:
            filling = self._fillings[topic.mirror] = Filling(self._me, settings, self._tell)
        if (copy := filling.copies.get(partition)) is None or not copy.is_led:
            filling.forget(partition)
            filling.follow(Copy(partition, topic.source_topic, topic.source_id, known.epochs))

    def _forget(self, partition: Partition) -> None:
        for filling in self._fillings.values():
            filling.forget(partition)

    async def _tell(self, topic: str, report: Report) -> None:
        config = AlterableConfig(
            name=str(report.partition), config_operation=SET, value=msgspec.json.encode(report).decode()
        )
        resource = AlterConfigsResource(
            resource_type=i8(MIRRORED_TOPIC_RESOURCE), resource_name=topic, configs=(config,)
        )
        answer = await self._ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
        (outcome,) = answer.responses
        if outcome.error_code is not ErrorCode.none:
            raise KafkaError(outcome.error_code, outcome.error_message or outcome.error_code.name)
