"""All that this broker copies from other clusters: the partitions that it leads whose topics are copies, by mirror.

What decides is the image alone: who leads, of which mirror a topic is a copy, what that mirror's settings say, and whether the copy is stopped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.metadata.image import MIRROR_RESOURCE, MIRRORED_TOPIC_RESOURCE, Changes, Image
from ottla_broker.metadata.mirror_plans import NO_OFFSET, Report, known_partition
from ottla_broker.metadata.records import MirroredPartition, MirroredTopic
from ottla_broker.mirroring.copying import UNKNOWN, Copy
from ottla_broker.mirroring.divergence import begin, is_cut
from ottla_broker.mirroring.filling import Filling
from ottla_broker.mirroring.links import Link, link
from ottla_broker.mirroring.opening import abort_open, report_end
from ottla_broker.mirroring.rejoining import Rejoiner, Rejoining
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.wire.errors import ErrorCode, KafkaError

Ask = Callable[[Any], Awaitable[Any]]
SET = i8(0)


class Mirrors:
    """`ask` brings a request to the active controller; `now_ms`: wall time; `own`: this cluster's addresses."""

    def __init__(
        self,
        me: int,
        image: Image,
        partitions: Partitions,
        ask: Ask,
        now_ms: Callable[[], int],
        own: Callable[[], Sequence[tuple[str, int]]],
    ) -> None:
        self._me = me
        self._image = image
        self._partitions = partitions
        self._ask = ask
        self._now_ms = now_ms
        self._own = own
        self._fillings: dict[str, Filling] = {}
        self._rejoinings: dict[str, Rejoining] = {}
        self._source_ends: dict[Partition, int] = {}
        self._opening: dict[Partition, int] = {}  # in which epoch
        self._tasks: dict[asyncio.Task[None], None] = {}

    def copies(self) -> Iterator[tuple[Link, Copy]]:
        """What is being copied here."""
        for filling in self._fillings.values():
            for copy in filling.copies.values():
                yield filling.link, copy

    def copy_of(self, partition: Partition) -> Copy | None:
        """While it is being copied here."""
        return next((copy for one in self._fillings.values() if (copy := one.copies.get(partition))), None)

    def rejoiners(self) -> Iterator[Rejoiner]:
        """What is to become a copy here."""
        for rejoining in self._rejoinings.values():
            yield from rejoining.rejoiners.values()

    def rejoiner_of(self, partition: Partition) -> Rejoiner | None:
        """While it is not known here where it goes on."""
        return next((found for one in self._rejoinings.values() if (found := one.rejoiners.get(partition))), None)

    def trouble(self, mirror: str) -> str:
        """Why its source cannot be reached from here; empty when it can."""
        filling = self._fillings.get(mirror)
        return "" if filling is None else filling.trouble

    def led(self, partition: Partition) -> None:
        """This broker leads it, in an epoch that is new."""
        self._forget(partition)
        self._cut(partition)
        self._consider(partition)

    def lost(self, partition: Partition) -> None:
        self._forget(partition)
        self._source_ends.pop(partition, None)
        self._opening.pop(partition, None)

    def follow(self, changes: Changes) -> None:
        for kind, name in changes.configs:
            if kind == MIRROR_RESOURCE:
                self._reset(name)
        for name in changes.mirrored:
            self._consider_topic(name)

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        rooms: list[Filling | Rejoining] = [*self._fillings.values(), *self._rejoinings.values()]
        await asyncio.gather(*tasks, *(one.close() for one in rooms), return_exceptions=True)
        self._fillings.clear()
        self._rejoinings.clear()

    def _reset(self, name: str) -> None:
        """Its settings are others: its connections are made anew."""
        now = link(self._image, name)
        before, rejoining = self._fillings.get(name), self._rejoinings.get(name)
        if before is not None and before.link != now:
            del self._fillings[name]
            for copy in before.copies.values():
                self._remember(copy)
            self._spawn(before.close())
        if rejoining is not None and rejoining.link != now:
            self._spawn(self._rejoinings.pop(name).close())
        for topic in self._image.mirrored.values():
            if topic.mirror == name:
                self._consider_topic(self._image.topic_names[topic.topic])

    def _consider_topic(self, name: str) -> None:
        for index in self._image.topics[name].partitions if name in self._image.topics else ():
            if (partition := self._partitions.get(name, index)) is not None:
                self._consider(partition)

    def _consider(self, partition: Partition) -> None:
        """Copies it, or does not any more; opens it, when it has failed over."""
        topic = self._image.mirrored.get(partition.topic_id)
        settings = None if topic is None else link(self._image, topic.mirror)
        known = known_partition(self._image, partition.topic_id, partition.partition)
        if topic is not None and topic.failed_over:
            self._forget(partition)
            if partition.leads:
                self._open(partition, known.end)
        elif topic is None or settings is None or not (partition.leads and settings.replicates) or known.stopped:
            self._forget(partition)
        elif topic.adopted and not self._goes_on(partition, known):
            self._forget_copy(partition)
            self._join(partition, topic, known, settings)
        else:
            self._forget_rejoiner(partition)
            filling = self._fillings.get(topic.mirror)
            if filling is None:
                filling = self._fillings[topic.mirror] = Filling(self._me, settings, self._tell)
            if (copy := filling.copies.get(partition)) is None or not copy.is_led:
                filling.forget(partition)
                filling.follow(Copy(partition, topic.source_topic, topic.source_id, known.epochs))

    @staticmethod
    def _goes_on(partition: Partition, known: MirroredPartition) -> bool:
        """Whether a partition of an adopted topic holds what its source has, and nothing else."""
        return known.joined != NO_OFFSET and is_cut(partition.log, known.joined, known.joined_epoch)

    def _join(self, partition: Partition, topic: MirroredTopic, known: MirroredPartition, settings: Link) -> None:
        rejoining = self._rejoinings.get(topic.mirror)
        if rejoining is None:
            rejoining = self._rejoinings[topic.mirror] = Rejoining(self._me, settings, self._tell, self._own)
        rejoining.follow(partition, topic, known)

    def _cut(self, partition: Partition) -> None:
        """The first thing in a leader epoch, when nobody can have fetched in it: what the metadata say is to go, if it was saved here."""
        known = known_partition(self._image, partition.topic_id, partition.partition)
        if known.joined != NO_OFFSET and self._image.closed(partition.topic_id) is not None:
            with suppress(KafkaError):  # its disk failed: another broker will lead
                begin(partition, known.joined, known.joined_epoch)

    def _open(self, partition: Partition, end: int) -> None:
        if end >= 0:
            with suppress(KafkaError):  # its disk failed: another broker will lead
                abort_open(partition, end, self._now_ms())
        elif self._opening.get(partition) != partition.leader_epoch:
            self._opening[partition] = partition.leader_epoch
            source_end = self._source_ends.get(partition, UNKNOWN)
            self._spawn(report_end(partition, self._me, source_end, self._tell))

    def _forget(self, partition: Partition) -> None:
        self._forget_copy(partition)
        self._forget_rejoiner(partition)

    def _forget_rejoiner(self, partition: Partition) -> None:
        for rejoining in self._rejoinings.values():
            rejoining.forget(partition)

    def _forget_copy(self, partition: Partition) -> None:
        for filling in self._fillings.values():
            self._remember(filling.forget(partition))

    def _remember(self, copy: Copy | None) -> None:
        """How far the source was when last seen: a failover is to tell that."""
        if copy is not None and copy.source_end != UNKNOWN:
            self._source_ends[copy.partition] = copy.source_end

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

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
