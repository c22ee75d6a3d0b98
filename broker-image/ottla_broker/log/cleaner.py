"""The cleaner: compacts the logs of one log directory, the dirtiest first, one at a time.

`log.cleaning_plan` chooses the range to clean and `log.compaction` the records to keep.
`log.cleaning_job` reads and writes in other threads; `log.segment_swap` replaces the segments on
the event loop's thread. Groups of segments are cleaned from old to new, and a cleaning that cannot
continue ends there: so a segment whose tombstones are removed never follows an older one that has
not been cleaned.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, ParamSpec, TypeVar

import msgspec

from ottla_broker.log import cleaning_job, segment_swap
from ottla_broker.log.checkpoints import encode_offsets, read_offsets
from ottla_broker.log.cleaning_job import CleaningJob, SourceSegment
from ottla_broker.log.cleaning_plan import DirtyRange, choose_filthiest, choose_range
from ottla_broker.log.compaction import CleanerStats, CompactionFilter, OffsetMap
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.storage import Storage, is_out_of_resources
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

CHECKPOINT: Final = "cleaner-offset-checkpoint"

P = ParamSpec("P")
T = TypeVar("T")


class CleanerConfig(msgspec.Struct, frozen=True):
    """log.cleaner.enable, log.cleaner.backoff.ms, log.cleaner.dedupe.buffer.size (bytes) and
    log.cleaner.io.max.bytes.per.second (reading and writing together)."""

    enabled: bool = True
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    io_max_bytes_per_second: float = float("inf")


class LogChanged(Exception):
    """While the log was cleaned, it was truncated, deleted, moved, taken offline or shortened by
    retention.
    """


class Cleaner:
    """`config` may be replaced while it runs. `logs` is the directory's own mapping, with new logs
    and without deleted ones.

    `checkpoints`: end offset of each log's last cleaning. `uncleanable`: why a log is not cleaned
    until the next start.
    """

    def __init__(self, storage: Storage, directory: str, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self.storage = storage
        self.logs = logs
        self.config = CleanerConfig()
        self.path = f"{directory}/{CHECKPOINT}"
        self.checkpoints = self._read_checkpoints()
        self.uncleanable: dict[TopicPartition, str] = {}
        # The log and its number of truncations that each checkpoint is for.
        self._checkpointed: dict[TopicPartition, tuple[PartitionLog, int]] = {}
        # True while the file differs from `checkpoints`: a log was forgotten, or a write failed.
        self._is_file_stale = False

    def _read_checkpoints(self) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.storage.disk, self.path)
        except ValueError as error:
            logger.warning("cleaning every compacted log from its start: %s", error)
            return {}

    async def run(self) -> None:
        """Cleans logs until it is cancelled."""
        while True:
            config = self.config
            cleaned = await self.clean_filthiest_log() if config.enabled else None
            if self._is_file_stale:
                try:
                    await self._write_checkpoints()
                except OSError as error:  # a full disk must not end the loop
                    logger.warning("cannot write %s, retrying: %s", self.path, error)
            if cleaned is None:
                await asyncio.sleep(config.backoff_ms / 1000)

    def forget_log(self, topic: str, partition: int) -> None:
        """Drops the state of a log that was deleted, moved away, truncated or replaced by another
        of the same name.
        """
        self.uncleanable.pop((topic, partition), None)
        self._checkpointed.pop((topic, partition), None)
        self._is_file_stale |= self.checkpoints.pop((topic, partition), None) is not None

    async def clean_filthiest_log(self) -> CleanerStats | None:
        """Cleans one log; None if no log needs it, or if the cleaning failed or was stopped by a
        change of the log.

        A failure concerns its log alone: the log becomes `uncleanable` or goes offline, or is tried
        again later.
        """
        chosen = self.choose_log()
        if chosen is None:
            return None
        log, dirty = chosen
        stats = CleanerStats()
        try:
            job = cleaning_job.plan_job(log, dirty, self.storage.runtime.now_ms())
            end = await self._clean(job, stats)
            if self.logs.get((log.topic, log.partition)) is log:
                self.checkpoints[log.topic, log.partition] = end
            await self._write_checkpoints()
        except LogChanged as error:
            logger.info("compaction of %s stopped: %s", log, error)
        except ValueError as error:
            self._mark_uncleanable(log, error)
        except KafkaError as error:
            logger.error("compaction of %s failed: %s", log, error)
        except OSError as error:
            if is_out_of_resources(error):
                logger.warning("compaction of %s is postponed: %s", log, error)
            else:
                log.storage_error("compaction", log.directory, error)
        else:
            logger.info(
                "compacted %s up to offset %d: %d records of %d bytes became %d of %d bytes",
                *(log, end, stats.records_read, stats.bytes_read, stats.records_kept, stats.bytes_kept),
            )
            return stats
        return None

    def choose_log(self) -> tuple[PartitionLog, DirtyRange] | None:
        """Returns the log to clean next, with its dirty range; None when no log needs cleaning."""
        now_ms = self.storage.runtime.now_ms()
        return choose_filthiest(
            (log, dirty)
            for partition, log in list(self.logs.items())
            if log.config.cleanup_compact and len(log.segments) > 1 and log.failure is None and not log.is_moving
            if partition not in self.uncleanable and (dirty := self._choose_range(partition, log, now_ms)) is not None
        )

    def _choose_range(self, partition: TopicPartition, log: PartitionLog, now_ms: int) -> DirtyRange | None:
        current = (log, log.flush.truncation_count)
        if self._checkpointed.setdefault(partition, current) != current:
            # A truncation or another log may have replaced what was clean.
            self.forget_log(*partition)
            self._checkpointed[partition] = current
        if not cleaning_job.can_clean(log):
            return None
        try:
            return choose_range(
                cleaning_job.summarize_segments(log),
                log.config,
                start=log.start,
                end=log.end,
                stable=log.last_stable_offset,
                checkpoint=self.checkpoints.get(partition),
                now_ms=now_ms,
            )
        except ValueError as error:
            self._mark_uncleanable(log, error)
        except OSError as error:
            log.storage_error("compaction", log.directory, error)
        return None

    def _mark_uncleanable(self, log: PartitionLog, error: ValueError) -> None:
        logger.error("%s is not compacted until the next start: %s", log, error)
        self.uncleanable[log.topic, log.partition] = str(error)

    async def _clean(self, job: CleaningJob, stats: CleanerStats) -> int:
        """Returns the offset that the cleaning reached."""
        files = OpenFiles(self.storage.disk)
        offsets = OffsetMap(self.config.dedupe_buffer_bytes, job.dirty.first_dirty)
        try:
            await self._run_paced(cleaning_job.build_offset_map(files, job, offsets))
            groups = cleaning_job.group_sources(job, offsets.latest + 1)
            record_filter = await self._run_in_thread(cleaning_job.make_filter, files, job, offsets, groups, stats)
            for group in groups:
                await self._clean_group(files, job, group, record_filter)
        except FileNotFoundError as error:
            if self._is_current(job, job.sources):
                raise
            raise LogChanged(f"{error.filename} was removed") from error
        finally:
            files.close_all()
        return offsets.latest + 1

    async def _clean_group(
        self, files: OpenFiles, job: CleaningJob, group: Sequence[SourceSegment], record_filter: CompactionFilter
    ) -> None:
        log, disk = job.log, self.storage.disk
        new = segment_swap.create_cleaned_segment(files, log.directory, group[0].summary.base, job.now_ms)
        try:
            await self._run_paced(cleaning_job.clean_group(files, group, record_filter, new))
            if not self._is_current(job, group):
                raise LogChanged(f"its segments from offset {new.base} on have changed")
        except BaseException:
            # Also when the broker stops: nothing half-written stays.
            files.close_all()
            segment_swap.remove_cleaned_segment(disk, new)
            raise
        files.close_all()
        segment_swap.swap_in(log, [source.segment for source in group], new, self.storage.runtime.now_ms())
        await self._run_in_thread(disk.sync_directory, log.directory)

    def _is_current(self, job: CleaningJob, sources: Sequence[SourceSegment]) -> bool:
        log = job.log
        return self.logs.get((log.topic, log.partition)) is log and not log.is_moving and job.is_current(sources)

    async def _run_paced(self, steps: Iterator[int]) -> None:
        """Runs steps in other threads at the configured pace. Each step yields the number of bytes
        that it moved.
        """
        loop = asyncio.get_running_loop()
        began, moved = loop.time(), 0
        while (step := await self._run_in_thread(next, steps, None)) is not None:
            moved += step
            ahead_s = moved / self.config.io_max_bytes_per_second - (loop.time() - began)
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)

    async def _run_in_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs like `Runtime.run_in_thread`, but a cancelled caller waits for the thread, which
        still uses its files.
        """
        running = asyncio.ensure_future(self.storage.runtime.run_in_thread(call, *args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    async def _write_checkpoints(self) -> None:
        remaining = {partition: at for partition, at in self.checkpoints.items() if partition in self.logs}
        self.checkpoints, self._is_file_stale = remaining, False
        try:
            await self._run_in_thread(self.storage.disk.replace_file, self.path, encode_offsets(remaining))
        except OSError:
            self._is_file_stale = True
            raise
