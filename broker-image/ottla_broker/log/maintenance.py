"""The background work of a log directory, in one loop: flushing, checkpoints, retention, deletion,
expiry of producers.

One loop serves all partitions, so that thousands of idle ones cost next to nothing: it wakes once a
second, and most of its work concerns changed logs only.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.retention import take_files_to_delete
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 16 << 20
"""Unflushed bytes of a log above which a checkpoint flushes it. They bound what a restart after a
crash has to read."""
LOGS_PER_SLICE: Final = 250
"""Logs that a slice visits before other tasks may run: about 0.05 ms, if there is nothing to do for
them."""
_TICK_S: Final = 1.0


class MaintenanceIntervals(msgspec.Struct, frozen=True):
    """Broker settings, in ms, with Kafka's defaults."""

    # log.retention.check.interval.ms
    retention_check_ms: int = 300_000
    # log.flush.offset.checkpoint.interval.ms
    flush_checkpoint_ms: int = 60_000
    # replica.high.watermark.checkpoint.interval.ms
    watermark_checkpoint_ms: int = 5_000
    # producer.id.expiration.check.interval.ms
    producer_check_ms: int = 600_000


async def maintain(directory: LogDir, intervals: MaintenanceIntervals) -> None:
    """The background work of a directory, until it is cancelled.

    Compaction has a loop of its own, because one cleaning may take minutes.
    """
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(LogDirMaintenance(directory, intervals).run())
        tasks.create_task(directory.cleaner.run())


class LogDirMaintenance:
    def __init__(self, directory: LogDir, intervals: MaintenanceIntervals) -> None:
        self.directory = directory
        self.intervals = intervals
        self._runtime = directory.storage.runtime
        self._disk = directory.storage.disk

    async def run(self) -> None:
        """Runs until cancelled. A job that fails with a KafkaError is logged, and runs again the
        next time.
        """
        intervals = self.intervals
        jobs: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (0, self.checkpoint_rolled_logs),
            (0, self.sync_overdue_logs),
            (intervals.watermark_checkpoint_ms, self.write_high_watermarks),
            (intervals.watermark_checkpoint_ms, self.remove_deleted_files),
            (intervals.flush_checkpoint_ms, self.write_recovery_points),
            (intervals.retention_check_ms, self.apply_retention),
            (intervals.producer_check_ms, self.remove_expired_producers),
        )
        loop = asyncio.get_running_loop()
        due = [loop.time() + period / 1000 for period, _ in jobs]
        while True:
            await asyncio.sleep(_TICK_S)
            for at, (period, job) in enumerate(jobs):
                if loop.time() >= due[at]:
                    try:
                        await job()
                    except KafkaError as error:
                        logger.error("%s: %s", self.directory.path, error.message)
                    due[at] = loop.time() + period / 1000

    async def _working_logs(self) -> AsyncIterator[PartitionLog]:
        """The logs that have not failed. Lets other tasks run after each LOGS_PER_SLICE of them;
        logs may come and go meanwhile."""
        for number, log in enumerate(list(self.directory.logs.values()), 1):
            if log.failure is None:
                yield log
            if number % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def checkpoint_rolled_logs(self) -> None:
        """Checkpoints the logs that have rolled, which syncs their closed segments."""
        async for log in self._working_logs():
            if log.flush.has_rolled_segment:
                log.flush.has_rolled_segment = False
                await self._flush(log, log.checkpoint())

    async def sync_overdue_logs(self) -> None:
        """Syncs what has waited for longer than flush.ms."""
        now_ms = self._runtime.now_ms()
        async for log in self._working_logs():
            state = log.flush
            if state.flushed_offset >= log.end:
                state.unflushed_since_ms = -1
            elif state.unflushed_since_ms < 0:
                state.unflushed_since_ms = now_ms
            elif now_ms - state.unflushed_since_ms >= log.config.flush_ms:
                state.unflushed_since_ms = -1
                await self._flush(log, log.wait_until_synced(log.end))

    async def _flush(self, log: PartitionLog, action: Awaitable[None]) -> None:
        try:
            await action
        except KafkaError as error:
            logger.error("flush of %s-%d: %s", log.topic, log.partition, error.message)

    async def write_high_watermarks(self) -> None:
        """Writes the high watermarks and log starts of all logs, if an offset of a log changed."""
        changed = [log async for log in self._working_logs() if log.is_checkpoint_stale]
        if changed:
            for log in changed:
                log.is_checkpoint_stale = False
            await self.directory.write_checkpoints(recovery_points=False)

    async def write_recovery_points(self) -> None:
        """Checkpoints the logs that have more than CHECKPOINT_BYTES above their recovery points,
        then writes all checkpoint files."""
        async for log in self._working_logs():
            if log.end > log.recovery_point and log.size_from(log.recovery_point) > CHECKPOINT_BYTES:
                await self._flush(log, log.checkpoint())
        await self.directory.write_checkpoints(recovery_points=True)

    async def apply_retention(self) -> None:
        now_ms = self._runtime.now_ms()
        async for log in self._working_logs():
            try:
                log.apply_retention(now_ms)
            except KafkaError as error:
                logger.error("retention of %s-%d: %s", log.topic, log.partition, error.message)
            await asyncio.sleep(0)  # deleting segments takes long

    async def remove_deleted_files(self) -> None:
        """Removes the files that retention and compaction have renamed, when their delay is over,
        and the folders of deleted partitions at once."""
        now_ms = self._runtime.now_ms()
        # A copy: topics come and go while files are removed.
        for log in list(self.directory.logs.values()):
            if log.files_to_delete and (paths := take_files_to_delete(log, now_ms)):
                await self._runtime.run_in_thread(_remove_all, self._disk.remove, paths)
        folders, self.directory.folders_to_delete = self.directory.folders_to_delete, []
        await self._runtime.run_in_thread(_remove_all, self._disk.remove_tree, folders)

    async def remove_expired_producers(self) -> None:
        now_ms = self._runtime.now_ms()
        async for log in self._working_logs():
            log.producers.remove_expired(now_ms, self.directory.producer_expiration_ms)


def _remove_all(remove: Callable[[str], None], paths: Sequence[str]) -> None:
    for path in paths:
        try:
            remove(path)
        except OSError as error:  # must not end the other work of the directory
            logger.error("cannot remove %s, which stays until the next start: %s", path, error)
