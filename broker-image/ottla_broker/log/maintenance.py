"""The background work of a log directory, in one loop: flushing, checkpoints, retention, deletion, expiry of producers.

One loop for all partitions, so that thousands of idle ones cost next to nothing: what is due is looked at once a second, and most of it
only for logs that were touched.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.retention import remove_retired
from ottla_broker.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla_broker.log.log_dir import LogDir

log = logging.getLogger(__name__)

FLUSH_BEHIND: Final = 16 << 20
"""Bytes of unflushed log from which on a checkpoint flushes it: they bound what a restart after a crash has to read."""
_TICK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class MaintenanceIntervals:
    """Broker settings, in ms, with Kafka's defaults."""

    retention_check_ms: int = 300_000  # log.retention.check.interval.ms
    flush_checkpoint_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    watermark_checkpoint_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    producer_check_ms: int = 600_000  # producer.id.expiration.check.interval.ms


class LogDirMaintenance:
    def __init__(self, directory: "LogDir", intervals: MaintenanceIntervals) -> None:
        self.directory = directory
        self.intervals = intervals
        self._runtime = directory.storage.runtime
        self._disk = directory.storage.disk

    async def run(self) -> None:
        """Until cancelled. What fails for one log is told, and done again the next time."""
        each = self.intervals
        jobs: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (0, self.flush_rolled),
            (0, self.flush_overdue),
            (each.watermark_checkpoint_ms, self.checkpoint_watermarks),
            (each.watermark_checkpoint_ms, self.remove_files),
            (each.flush_checkpoint_ms, self.checkpoint_recovery_points),
            (each.retention_check_ms, self.apply_retention),
            (each.producer_check_ms, self.expire_producers),
        )
        loop = asyncio.get_running_loop()
        due = [loop.time() + period / 1000 for period, _ in jobs]
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            for at, (period, job) in enumerate(jobs):
                if loop.time() >= due[at]:
                    try:
                        await job()
                    except KafkaError as error:
                        log.error("%s: %s", self.directory.path, error.message)
                    due[at] = loop.time() + period / 1000

    def _working(self) -> list[PartitionLog]:
        return [one for one in self.directory.logs.values() if one.failed is None]

    async def flush_rolled(self) -> None:
        """A closed segment goes to the device soon, before what follows it gets there by itself."""
        storage = self.directory.storage
        rolled, storage.rolled = storage.rolled, []
        for one in {id(one): one for one in rolled if one.failed is None}.values():
            await self._tried(one, one.flush.checkpoint())

    async def flush_overdue(self) -> None:
        """flush.ms: what has been waiting for longer is synced."""
        now_ms = self._runtime.now_ms()
        for one in self._working():
            flush = one.flush
            if flush.flushed >= one.end:
                flush.unflushed_since_ms = -1
            elif flush.unflushed_since_ms < 0:
                flush.unflushed_since_ms = now_ms
            elif now_ms - flush.unflushed_since_ms >= one.config.flush_ms:
                flush.unflushed_since_ms = -1
                await self._tried(one, one.wait_until_synced(one.end))

    async def checkpoint_watermarks(self) -> None:
        touched = [one for one in self._working() if one.touched]
        if touched:
            for one in touched:
                one.touched = False
            await self.directory.write_checkpoints(recovery_points=False)

    async def checkpoint_recovery_points(self) -> None:
        """Flushes the logs that have much unflushed, and writes down how far all are."""
        for one in self._working():
            if one.end > one.recovery_point and one.size_from(one.recovery_point) > FLUSH_BEHIND:
                await self._tried(one, one.flush.checkpoint())
        await self.directory.write_checkpoints(recovery_points=True)

    async def apply_retention(self) -> None:
        now_ms = self._runtime.now_ms()
        for one in self._working():
            try:
                one.apply_retention(now_ms)
            except KafkaError as error:
                log.error("retention of %s-%d: %s", one.topic, one.partition, error.message)
            await asyncio.sleep(0)  # thousands of logs must not hold up the protocol

    async def remove_files(self) -> None:
        """Unlinks what retention, compaction and deletion have renamed, when their delay is over."""
        now_ms = self._runtime.now_ms()
        for one in list(self.directory.logs.values()):  # topics come and go while files are removed
            if one.retired and (paths := remove_retired(one, now_ms)):
                await self._runtime.run_in_thread(_remove_all, self._disk.remove, paths)
        folders, self.directory.folders_to_delete = self.directory.folders_to_delete, []
        await self._runtime.run_in_thread(_remove_all, self._disk.remove_tree, folders)

    async def expire_producers(self) -> None:
        now_ms = self._runtime.now_ms()
        for one in self._working():
            one.producers.remove_expired(now_ms, self.directory.producer_expiration_ms)

    async def _tried(self, one: PartitionLog, action: Awaitable[None]) -> None:
        try:
            await action
        except KafkaError as error:
            log.error("flush of %s-%d: %s", one.topic, one.partition, error.message)


def _remove_all(remove: Callable[[str], None], paths: list[str]) -> None:
    for path in paths:
        remove(path)
