"""Everything that this broker mirrors: the partitions that it leads and that mirrors fill, by
mirror.

Only the metadata image decides what is mirrored: the partition's leader, the topic's mirror, that
mirror's settings, and whether the partition has stopped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.metadata.appended_sources import active_sources, appended_partition
from ottla_broker.metadata.config_plans import mirror_topic_names
from ottla_broker.metadata.image import MIRROR_RESOURCE, MIRRORED_TOPIC_RESOURCE, MetadataDelta, MetadataImage
from ottla_broker.metadata.mirror_plans import NO_OFFSET, MirrorReport, is_awaiting_join, mirrored_partition
from ottla_broker.metadata.records import MirroredTopicRecord
from ottla_broker.mirroring.appended_offsets import AppendedOffsets
from ottla_broker.mirroring.failback import FailbackPartition, MirrorFailback
from ottla_broker.mirroring.failback_truncation import is_truncated, truncate_if_saved
from ottla_broker.mirroring.failover import abort_open_transactions, report_end_offset
from ottla_broker.mirroring.identical_offsets import IDENTICAL_OFFSETS
from ottla_broker.mirroring.mirror_config import MirrorConfig, mirror_config
from ottla_broker.mirroring.mirror_fetchers import MirrorFetchers
from ottla_broker.mirroring.mirrored_partition import UNKNOWN, MirroredPartition
from ottla_broker.mirroring.source_positions import source_position
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import KafkaError

SET_CONFIG: Final = i8(0)  # operation of IncrementalAlterConfigs


class LastKnownLag(NamedTuple):
    """How far a partition was behind its source when mirroring ended here; −1: unknown."""

    source_high_watermark: int = UNKNOWN
    lag: int = UNKNOWN


@dataclass(eq=False, repr=False)
class MirrorManager:
    """`_now_ms` is wall time. `_target_client` creates a client of this cluster with a client
    id.
    """

    _broker_id: int
    _image: MetadataImage
    _partitions: Partitions
    _send_to_controller: Callable[[Any], Awaitable[Any]]
    _now_ms: Callable[[], int]
    _target_client: Callable[[str], Client]

    def __post_init__(self) -> None:
        self._fetchers: dict[str, MirrorFetchers] = {}
        self._failbacks: dict[str, MirrorFailback] = {}
        self._last_known_lag: dict[tuple[Partition, str], LastKnownLag] = {}
        self._failover_reported: dict[Partition, int] = {}  # in which leader epoch
        self._tasks = BackgroundTasks()

    def mirrored_partitions(self) -> Iterator[tuple[MirrorConfig, MirroredPartition]]:
        """Every partition that is being mirrored here. Partitions may come and go while the result
        is read.
        """
        for fetchers in list(self._fetchers.values()):
            for mirrored in list(fetchers.partitions.values()):
                yield fetchers.config, mirrored

    def mirrored_partition(self, partition: Partition, mirror: str) -> MirroredPartition | None:
        fetchers = self._fetchers.get(mirror)
        return None if fetchers is None else fetchers.partitions.get(partition)

    def last_known_lag(self, partition: Partition, mirror: str) -> LastKnownLag:
        return self._last_known_lag.get((partition, mirror), LastKnownLag())

    def failback_partitions(self) -> Iterator[FailbackPartition]:
        """Every partition that fails back here. Partitions may come and go while the result is
        read.
        """
        for failback in list(self._failbacks.values()):
            yield from list(failback.partitions.values())

    def failback_partition(self, partition: Partition) -> FailbackPartition | None:
        """None unless the partition fails back here (`needs_failback`)."""
        failbacks = self._failbacks.values()
        return next((found for it in failbacks if (found := it.partitions.get(partition))), None)

    def source_error(self, mirror: str) -> str:
        """The reason why this broker cannot reach the mirror's source; empty if it can, or mirrors
        nothing from it.
        """
        fetchers = self._fetchers.get(mirror)
        return "" if fetchers is None else fetchers.source_error

    def on_leadership_gained(self, partition: Partition) -> None:
        """Called when this broker leads the partition in a new leader epoch."""
        self._remove_partition(partition)
        self._truncate_diverged(partition)
        self._update_partition(partition)

    def on_leadership_lost(self, partition: Partition) -> None:
        self._remove_partition(partition)
        for key in [key for key in self._last_known_lag if key[0] is partition]:
            del self._last_known_lag[key]
        self._failover_reported.pop(partition, None)

    def apply_changes(self, changes: MetadataDelta) -> None:
        for kind, name in changes.changed_configs:
            if kind == MIRROR_RESOURCE:
                self._apply_config(name)
        for name in changes.changed_mirrored_topics:
            self._update_topic(name)

    async def close(self) -> None:
        running: list[MirrorFetchers | MirrorFailback] = [*self._fetchers.values(), *self._failbacks.values()]
        await asyncio.gather(self._tasks.cancel(), *(it.close() for it in running), return_exceptions=True)
        self._fetchers.clear()
        self._failbacks.clear()

    def _apply_config(self, mirror: str) -> None:
        """Closes the mirror's connections if its settings have changed, and opens them again with
        the new ones.
        """
        config = mirror_config(self._image, mirror)
        fetchers, failback = self._fetchers.get(mirror), self._failbacks.get(mirror)
        if fetchers is not None and fetchers.config != config:
            del self._fetchers[mirror]
            for mirrored in fetchers.partitions.values():
                self._store_last_known_lag(mirror, mirrored)
            self._tasks.start(fetchers.close())
        if failback is not None and failback.config != config:
            self._tasks.start(self._failbacks.pop(mirror).close())
        for topic in mirror_topic_names(self._image, mirror):
            self._update_topic(topic)

    def _update_topic(self, name: str) -> None:
        for index in self._image.topics[name].partitions if name in self._image.topics else ():
            if (partition := self._partitions.get(name, index)) is not None:
                self._update_partition(partition)

    def _update_partition(self, partition: Partition) -> None:
        """Starts or stops mirroring, failback and failover of a partition, as the metadata image
        says.
        """
        desired = desired_partitions(self._image, partition)
        for mirror, fetchers in self._fetchers.items():
            if mirror not in desired:
                self._store_last_known_lag(mirror, fetchers.remove_partition(partition))
        topic = self._image.mirrored_topics.get(partition.topic_id)
        if topic is not None and needs_failback(self._image, topic, partition):
            record = mirrored_partition(self._image, partition.topic_id, partition.partition)
            self._failback_of(topic.mirror).add_partition(partition, topic, record)
        else:
            self._remove_failback(partition)
        if topic is not None and topic.failed_over and partition.is_leader:
            self._fail_over(partition, topic.mirror)
        for mirror, wanted in desired.items():
            current = (fetchers := self._fetchers_of(mirror)).partitions.get(partition)
            if current is None or not current.is_leader or current.source_id != wanted.source_id:
                fetchers.remove_partition(partition)
                fetchers.add_partition(wanted)

    def _fetchers_of(self, mirror: str) -> MirrorFetchers:
        fetchers = self._fetchers.get(mirror)
        if fetchers is None:
            config = self._config_of(mirror)
            fetchers = self._fetchers[mirror] = MirrorFetchers(self._broker_id, config, self._send_report)
        return fetchers

    def _failback_of(self, mirror: str) -> MirrorFailback:
        failback = self._failbacks.get(mirror)
        if failback is None:
            config = self._config_of(mirror)
            failback = MirrorFailback(self._broker_id, config, self._send_report, self._target_client)
            self._failbacks[mirror] = failback
        return failback

    def _config_of(self, mirror: str) -> MirrorConfig:
        config = mirror_config(self._image, mirror)
        assert config is not None  # a mirror without settings does not replicate
        return config

    def _truncate_diverged(self, partition: Partition) -> None:
        """The first action in a leader epoch, before a follower can fetch in it."""
        record = mirrored_partition(self._image, partition.topic_id, partition.partition)
        if record.joined != NO_OFFSET and self._image.active_mirror(partition.topic_id) is not None:
            with suppress(KafkaError):  # the disk has failed: another broker will lead
                truncate_if_saved(partition, record.joined, record.joined_epoch)

    def _fail_over(self, partition: Partition, mirror: str) -> None:
        """Takes the next step of the partition's failover (`failover`)."""
        end = mirrored_partition(self._image, partition.topic_id, partition.partition).end
        if end >= 0:
            with suppress(KafkaError):  # the disk has failed: another broker will lead
                abort_open_transactions(partition, end, self._now_ms())
        elif self._failover_reported.get(partition) != partition.leader_epoch:
            self._failover_reported[partition] = partition.leader_epoch
            high_watermark = self.last_known_lag(partition, mirror).source_high_watermark
            self._tasks.start(report_end_offset(partition, self._broker_id, high_watermark, self._send_report))

    def _remove_partition(self, partition: Partition) -> None:
        for mirror, fetchers in self._fetchers.items():
            self._store_last_known_lag(mirror, fetchers.remove_partition(partition))
        self._remove_failback(partition)

    def _remove_failback(self, partition: Partition) -> None:
        for failback in self._failbacks.values():
            failback.remove_partition(partition)

    def _store_last_known_lag(self, mirror: str, mirrored: MirroredPartition | None) -> None:
        """Stores the last known lag, which a failover reports."""
        if mirrored is not None and mirrored.source_high_watermark != UNKNOWN:
            lag = LastKnownLag(mirrored.source_high_watermark, mirrored.lag)
            self._last_known_lag[mirrored.partition, mirror] = lag

    async def _send_report(self, topic: str, report: MirrorReport) -> None:
        value = msgspec.json.encode(report).decode()
        config = AlterableConfig(name=str(report.partition), config_operation=SET_CONFIG, value=value)
        resource = AlterConfigsResource(
            resource_type=i8(MIRRORED_TOPIC_RESOURCE), resource_name=topic, configs=(config,)
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (result,) = (await self._send_to_controller(request)).responses
        raise_for_error(result.error_code, result.error_message or result.error_code.name)


def desired_partitions(image: MetadataImage, partition: Partition) -> dict[str, MirroredPartition]:
    """What this broker must mirror into the partition, by mirror: nothing unless it leads the
    partition, else one MirroredPartition for each source of a mirror that replicates. Sources that
    are stopped or need a failback first are left out. Pure.
    """
    if not partition.is_leader:
        return {}
    found = {}
    topic = image.active_mirror(partition.topic_id)
    if topic is not None and _is_replicating(image, topic, partition) and not needs_failback(image, topic, partition):
        record = mirrored_partition(image, partition.topic_id, partition.partition)
        found[topic.mirror] = MirroredPartition(
            partition, topic.source_topic, topic.source_id, record.epochs, IDENTICAL_OFFSETS
        )
    for source in active_sources(image, partition.topic_id).values():
        config = mirror_config(image, source.mirror)
        if config is None or not config.is_replicating or source.stopped or partition.partition >= source.partitions:
            continue
        appended = appended_partition(image, partition.topic_id, source.source_id, partition.partition)
        if not appended.stopped:
            position = source_position(partition.log.producers.get(source.producer_id))
            policy = AppendedOffsets(source.producer_id, position, config.resyncs_on_truncation)
            found[source.mirror] = MirroredPartition(
                partition, source.source_topic, source.source_id, appended.epochs, policy
            )
    return found


def needs_failback(image: MetadataImage, topic: MirroredTopicRecord, partition: Partition) -> bool:
    """True while a partition of a mirrored topic that had records of its own may still have some
    that its source does not have. False while the mirror does not replicate. Pure.
    """
    if topic.failed_over or not _is_replicating(image, topic, partition):
        return False
    record = mirrored_partition(image, partition.topic_id, partition.partition)
    if is_awaiting_join(topic, record):
        return True
    return record.joined != NO_OFFSET and not is_truncated(partition.log, record.joined, record.joined_epoch)


def _is_replicating(image: MetadataImage, topic: MirroredTopicRecord, partition: Partition) -> bool:
    config = mirror_config(image, topic.mirror)
    record = mirrored_partition(image, partition.topic_id, partition.partition)
    return partition.is_leader and config is not None and config.is_replicating and not record.stopped
