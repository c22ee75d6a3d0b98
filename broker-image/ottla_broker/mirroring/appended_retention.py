"""Retention of topics into which sources are appended: it never deletes the position of a source.

The last batch from a source stores up to where the source was mirrored (`source_positions`), and
retention or DeleteRecords may be about to delete that batch. So followers of such a topic do not
delete by themselves: they follow the leader's log start. The leader first writes the positions
again, above the records to delete, waits until these position markers are committed, and then
deletes. So a replica that is rebuilt from the remaining records can lead.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.config import LOG_RETENTION_CHECK_INTERVAL_MS, Config
from ottla_broker.metadata.appended_sources import retained_sources
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.mirroring.source_positions import encode_position_marker, source_position
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_S: Final = 10.0  # for the in-sync replicas to replicate position markers


@dataclass(eq=False, repr=False)
class AppendedRetention:
    """`_now_ms` is wall time."""

    _image: MetadataImage
    _partitions: Partitions
    _config: Config
    _now_ms: Callable[[], int]
    # The last position marker in a partition for a producer id: leader epoch and offset.
    _markers: dict[tuple[Partition, int], tuple[int, int]] = field(default_factory=dict)

    async def run(self) -> None:
        """Applies retention by time and size to the partitions that this broker leads, until
        cancelled.
        """
        while True:
            await asyncio.sleep(self._config(LOG_RETENTION_CHECK_INTERVAL_MS) / 1000)
            if not self._image.appended_sources:
                continue
            for partition in [it for it in self._partitions if self._producer_ids(it)]:
                if partition.is_leader and partition.log.failure is None:
                    try:
                        await self._apply_retention(partition)
                    except (KafkaError, OSError, TimeoutError) as reason:
                        why = reason or f"position markers were not committed within {COMMIT_TIMEOUT_S:g} s"
                        logger.warning("%r: retention is postponed: %s", partition, why)

    async def _apply_retention(self, partition: Partition) -> None:
        log, settings = partition.log, self._config.log_config(self._image.topic_config(partition.topic))
        if log.end - log.start <= self._count_position_markers(partition):
            return  # only position markers are left: deleting them would write them again, forever
        start = log.retention_offset(settings, self._now_ms())
        if start == log.end > log.start:
            log.roll()  # position markers must not be written to the segment that is deleted
        await self.preserve_source_positions(partition, start)
        if start > log.start and partition.is_leader:
            log.delete_records_before(start)
            partition.notify_log_start_change()

    def _count_position_markers(self, partition: Partition) -> int:
        markers = [
            self._markers.get((partition, producer_id), (-1, -1)) for producer_id in self._producer_ids(partition)
        ]
        return sum(epoch == partition.leader_epoch and at >= partition.log.start for epoch, at in markers)

    def _producer_ids(self, partition: Partition) -> list[int]:
        """Producer ids that stand for the partition's sources."""
        return [source.producer_id for source in retained_sources(self._image, partition.topic_id)]

    async def preserve_source_positions(self, partition: Partition, new_start: int) -> None:
        """Returns when the positions of all sources are committed at or above offset `new_start`.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR; TimeoutError if the ISR is
        too slow.
        """
        offsets = [self.ensure_position_above(partition, it, new_start) for it in self._producer_ids(partition)]
        last = max(offsets, default=-1)
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            await partition.wait_in_epoch(partition.read_waiters, lambda: partition.log.high_watermark > last)

    def ensure_position_above(self, partition: Partition, producer_id: int, new_start: int) -> int:
        """Writes a position marker unless the log has the source's position at or above
        `new_start`.

        Returns the offset of the position, −1 if the log has no records of the source.
        """
        producer, key = partition.log.producers.get(producer_id), (partition, producer_id)
        if producer is None or not (position := source_position(producer)):
            return -1
        epoch, at = self._markers.get(key, (-1, -1))
        newest = max(producer.last_offset, at if epoch == partition.leader_epoch else -1)
        if newest < new_start:
            marker = encode_position_marker(
                producer_id,
                position,
                base_offset=partition.log.end,
                leader_epoch=partition.leader_epoch,
                timestamp_ms=self._now_ms(),
            )
            newest = partition.append_mirrored_records(marker).last_offset
            self._markers[key] = partition.leader_epoch, newest
        return newest
