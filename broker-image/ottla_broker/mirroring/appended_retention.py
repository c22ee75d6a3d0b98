"""How far sources were copied outlives the records that say so.

What a topic lets go by time, by size or by DeleteRecords may hold the last batch that was copied from a source, which says how far that was copied. So
nothing of such a topic goes before something above it that is committed says it too: replicas of it let nothing go by themselves, but follow their
leader's log start, and the leader lets go here. A replica that is made anew from what is left has all that it needs to lead.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla_broker.config import LOG_RETENTION_CHECK_INTERVAL_MS, Config
from ottla_broker.log.retention import retention_offset
from ottla_broker.metadata.appended_sources import retained_sources
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.mirroring.source_positions import encode_position_marker, source_position
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

WITHIN_S: Final = 10.0  # that all of the ISR has what was said anew


class AppendedRetention:
    """`now_ms`: wall time."""

    def __init__(self, image: MetadataImage, partitions: Partitions, config: Config, now_ms: Callable[[], int]) -> None:
        self._image = image
        self._partitions = partitions
        self._config = config
        self._now_ms = now_ms
        # What was said anew: of which producer, in which epoch, at which offset.
        self._markers: dict[tuple[Partition, int], tuple[int, int]] = {}

    async def run(self) -> None:
        """Lets go what time and size want to go; until cancelled."""
        while True:
            await asyncio.sleep(self._config(LOG_RETENTION_CHECK_INTERVAL_MS) / 1000)
            for partition in [
                one for one in self._partitions if self._image.appended_sources and self._producer_ids(one)
            ]:
                if partition.is_leader and partition.log.failed is None:
                    try:
                        await self._apply_retention(partition)
                    except (KafkaError, OSError, TimeoutError) as reason:
                        logger.warning("%r lets nothing go for now: %s", partition, reason or "its ISR does not follow")

    async def _apply_retention(self, partition: Partition) -> None:
        log, settings = partition.log, self._config.log_config(self._image.topic_config(partition.topic))
        if log.end - log.start <= self._count_position_markers(partition):
            return  # or they would be said anew for ever
        start = retention_offset(log, settings, self._now_ms())
        if start == log.end > log.start:
            log.roll()  # what is said anew is not to lie in the segment that goes
        await self.preserve_source_positions(partition, start)
        if start > log.start and partition.is_leader:
            log.delete_records_before(start)
            partition.notify_log_start_change()

    def _count_position_markers(self, partition: Partition) -> int:
        """How many of ours are in the log."""
        said = [self._markers.get((partition, producer_id), (-1, -1)) for producer_id in self._producer_ids(partition)]
        return sum(epoch == partition.leader_epoch and at >= partition.log.start for epoch, at in said)

    def _producer_ids(self, partition: Partition) -> list[int]:
        """The producer ids by which the records of its sources are known."""
        return [source.producer_id for source in retained_sources(self._image, partition.topic_id)]

    async def preserve_source_positions(self, partition: Partition, below: int) -> None:
        """Returns when what lies below offset `below` is not needed any more to know how far the partition's sources were copied. KafkaError:
        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR; TimeoutError when the ISR does not take it in time."""
        needed = max(
            (
                self.ensure_position_above(partition, producer_id, below)
                for producer_id in self._producer_ids(partition)
            ),
            default=-1,
        )
        async with asyncio.timeout(WITHIN_S):
            await _committed(partition, needed)

    def ensure_position_above(self, partition: Partition, producer_id: int, below: int) -> int:
        """An offset from `below` on where it is said how far this source was copied; −1 when that needs not to be said."""
        producer, key = partition.log.producers.get(producer_id), (partition, producer_id)
        if producer is None or not (position := source_position(producer)):
            return -1
        epoch, at = self._markers.get(key, (-1, -1))
        newest = max(producer.last_offset, at if epoch == partition.leader_epoch else -1)
        if newest < below:
            said = encode_position_marker(
                producer_id,
                position,
                base_offset=partition.log.end,
                leader_epoch=partition.leader_epoch,
                timestamp_ms=self._now_ms(),
            )
            newest = partition.append_mirrored_records(said).last_offset
            self._markers[key] = partition.leader_epoch, newest
        return newest


async def _committed(partition: Partition, offset: int) -> None:
    epoch = partition.leader_epoch

    def committed() -> bool:
        if partition.log.high_watermark > offset:
            return True
        if not (partition.is_leader and partition.leader_epoch == epoch):
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return False

    await partition.read_waiters.wait_until(committed)
