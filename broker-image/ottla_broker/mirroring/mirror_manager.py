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

from ottla_broker.metadata.config_plans import mirror_topic_names
from ottla_broker.metadata.image import MIRROR_RESOURCE, MIRRORED_TOPIC_RESOURCE, MetadataDelta, MetadataImage
from ottla_broker.metadata.mirror_plans import NO_OFFSET, MirrorReport, mirrored_partition
from ottla_broker.metadata.records import MirroredTopicRecord
from ottla_broker.mirroring.diverged_records import truncate_if_saved
from ottla_broker.mirroring.failback import FailbackPartition, MirrorFailback
from ottla_broker.mirroring.failover import abort_open_transactions, report_end_offset
from ottla_broker.mirroring.mirror_config import MirrorConfig, mirror_config
from ottla_broker.mirroring.mirror_fetchers import MirrorFetchers
from ottla_broker.mirroring.mirrored_partition import IDENTICAL_OFFSETS, UNKNOWN, MirroredPartition
from ottla_broker.mirroring.wanted import desired_partitions, needs_failback
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.wire.errors import ErrorCode, KafkaError

Ask = Callable[[Any], Awaitable[Any]]
SET = i8(0)


class MirrorManager:
    """`ask` brings a request to the active controller; `now_ms`: wall time; `own`: this cluster's addresses."""

    def __init__(
        self,
        me: int,
        image: MetadataImage,
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
        self._fillings: dict[str, MirrorFetchers] = {}
        self._rejoinings: dict[str, MirrorFailback] = {}
        self._source_ends: dict[Partition, int] = {}
        self._last_seen: dict[tuple[Partition, str], tuple[int, int]] = {}
        self._opening: dict[Partition, int] = {}  # in which epoch
        self._tasks: dict[asyncio.Task[None], None] = {}

    def mirror_partitions(self) -> Iterator[tuple[MirrorConfig, MirroredPartition]]:
        """What is being copied here."""
        for filling in self._fillings.values():
            for copy in filling.partitions.values():
                yield filling.link, copy

    def mirror_partition(self, partition: Partition, mirror: str) -> MirroredPartition | None:
        """While it is being copied here."""
        filling = self._fillings.get(mirror)
        return None if filling is None else filling.partitions.get(partition)

    def last_known_lag(self, partition: Partition, mirror: str) -> tuple[int, int]:
        """Of a source that is appended no more: its high watermark, and how much of it was missing then; −1 and −1 when that is not known here."""
        return self._last_seen.get((partition, mirror), (UNKNOWN, UNKNOWN))

    def failback_partitions(self) -> Iterator[FailbackPartition]:
        """What is to become a copy here."""
        for rejoining in self._rejoinings.values():
            yield from rejoining.partitions.values()

    def failback_partition(self, partition: Partition) -> FailbackPartition | None:
        """While it is not known here where it goes on."""
        return next((found for one in self._rejoinings.values() if (found := one.partitions.get(partition))), None)

    def source_error(self, mirror: str) -> str:
        """Why its source cannot be reached from here; empty when it can."""
        filling = self._fillings.get(mirror)
        return "" if filling is None else filling.source_error

    def on_leadership_gained(self, partition: Partition) -> None:
        """This broker leads it, in an epoch that is new."""
        self._forget(partition)
        self._cut(partition)
        self._consider(partition)

    def on_leadership_lost(self, partition: Partition) -> None:
        self._forget(partition)
        self._source_ends.pop(partition, None)
        for key in [key for key in self._last_seen if key[0] is partition]:
            del self._last_seen[key]
        self._opening.pop(partition, None)

    def apply_changes(self, changes: MetadataDelta) -> None:
        for kind, name in changes.changed_configs:
            if kind == MIRROR_RESOURCE:
                self._reset(name)
        for name in changes.changed_mirrors:
            self._consider_topic(name)

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        rooms: list[MirrorFetchers | MirrorFailback] = [*self._fillings.values(), *self._rejoinings.values()]
        await asyncio.gather(*tasks, *(one.close() for one in rooms), return_exceptions=True)
        self._fillings.clear()
        self._rejoinings.clear()

    def _reset(self, name: str) -> None:
        """Its settings are others: its connections are made anew."""
        now = mirror_config(self._image, name)
        before, rejoining = self._fillings.get(name), self._rejoinings.get(name)
        if before is not None and before.link != now:
            del self._fillings[name]
            for copy in before.partitions.values():
                self._remember(name, copy)
            self._spawn(before.close())
        if rejoining is not None and rejoining.link != now:
            self._spawn(self._rejoinings.pop(name).close())
        for topic in mirror_topic_names(self._image, name):
            self._consider_topic(topic)

    def _consider_topic(self, name: str) -> None:
        for index in self._image.topics[name].partitions if name in self._image.topics else ():
            if (partition := self._partitions.get(name, index)) is not None:
                self._consider(partition)

    def _consider(self, partition: Partition) -> None:
        """Copies it, or does not any more; opens it, when it has failed over."""
        wanted = desired_partitions(self._image, partition)
        for name, filling in self._fillings.items():
            if name not in wanted:
                self._remember(name, filling.remove_partition(partition))
        topic = self._image.mirrored_topics.get(partition.topic_id)
        if topic is not None and needs_failback(self._image, topic, partition):
            self._rejoin(partition, topic)
        else:
            self._forget_rejoiner(partition)
        if topic is not None and topic.failed_over and partition.is_leader:
            self._open(partition, mirrored_partition(self._image, partition.topic_id, partition.partition).end)
        for name, copy in wanted.items():
            held = (filling := self._filling(name)).partitions.get(partition)
            if held is None or not held.is_leader or held.source_id != copy.source_id:
                filling.remove_partition(partition)
                filling.add_partition(copy)

    def _filling(self, mirror: str) -> MirrorFetchers:
        filling = self._fillings.get(mirror)
        if filling is None:
            settings = mirror_config(self._image, mirror)
            assert settings is not None  # or nothing of it would be wanted
            filling = self._fillings[mirror] = MirrorFetchers(self._me, settings, self._tell)
        return filling

    def _rejoin(self, partition: Partition, topic: MirroredTopicRecord) -> None:
        rejoining = self._rejoinings.get(topic.mirror)
        if rejoining is None:
            settings = mirror_config(self._image, topic.mirror)
            assert settings is not None  # or it would not be to rejoin
            rejoining = self._rejoinings[topic.mirror] = MirrorFailback(self._me, settings, self._tell, self._own)
        rejoining.follow(partition, topic, mirrored_partition(self._image, partition.topic_id, partition.partition))

    def _cut(self, partition: Partition) -> None:
        """The first thing in a leader epoch, when nobody can have fetched in it: what the metadata say is to go, if it was saved here."""
        known = mirrored_partition(self._image, partition.topic_id, partition.partition)
        if known.joined != NO_OFFSET and self._image.active_mirror(partition.topic_id) is not None:
            with suppress(KafkaError):  # its disk failed: another broker will lead
                truncate_if_saved(partition, known.joined, known.joined_epoch)

    def _open(self, partition: Partition, end: int) -> None:
        if end >= 0:
            with suppress(KafkaError):  # its disk failed: another broker will lead
                abort_open_transactions(partition, end, self._now_ms())
        elif self._opening.get(partition) != partition.leader_epoch:
            self._opening[partition] = partition.leader_epoch
            source_end = self._source_ends.get(partition, UNKNOWN)
            self._spawn(report_end_offset(partition, self._me, source_end, self._tell))

    def _forget(self, partition: Partition) -> None:
        self._forget_copy(partition)
        self._forget_rejoiner(partition)

    def _forget_rejoiner(self, partition: Partition) -> None:
        for rejoining in self._rejoinings.values():
            rejoining.forget(partition)

    def _forget_copy(self, partition: Partition) -> None:
        for name, filling in self._fillings.items():
            self._remember(name, filling.remove_partition(partition))

    def _remember(self, mirror: str, copy: MirroredPartition | None) -> None:
        """How far the source was when last seen: a failover is to tell that."""
        if copy is None or copy.source_high_watermark == UNKNOWN:
            return
        if copy.offset_policy is IDENTICAL_OFFSETS:
            self._source_ends[copy.partition] = copy.source_high_watermark
        else:
            self._last_seen[copy.partition, mirror] = copy.source_high_watermark, copy.lag

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _tell(self, topic: str, report: MirrorReport) -> None:
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
