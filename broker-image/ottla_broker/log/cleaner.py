"""The cleaner: compacts the logs of one log directory, the dirtiest first, one at a time.

What is chosen and what stays is decided in `log.cleanable` and `log.compaction`; `log.cleaning` reads and writes, off
the protocol's thread; `log.swap` puts the result in place, on it. Groups of segments go from old to new, and a cleaning
that cannot go on ends there: a segment whose tombstones have gone never stands behind an older one that has not been
cleaned.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from ottla_broker.log import cleaning_job, swap
from ottla_broker.log.checkpoints import encode_offsets, read_offsets
from ottla_broker.log.cleanable import ToClean, filthiest, to_clean
from ottla_broker.log.cleaning_job import Job, Source
from ottla_broker.log.compaction import Compaction, KeyOffsets, Tally
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.storage import Storage, is_full
from ottla_broker.wire.errors import KafkaError

log = logging.getLogger(__name__)

CHECKPOINT: Final = "cleaner-offset-checkpoint"

Partition = tuple[str, int]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """log.cleaner.enable; log.cleaner.backoff.ms, the rest when nothing is to be done; log.cleaner.dedupe.buffer.size,
    in bytes; log.cleaner.io.max.bytes.per.second, reading and writing together."""

    enabled: bool = True
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    io_max_bytes_per_second: float = float("inf")


class Changed(Exception):
    """The log changed under the cleaning: truncated, deleted, shortened by retention."""


class Cleaner:
    """`settings` may be replaced while it runs. `checkpoints`: where each log's last cleaning ended. `uncleanable`: why
    a log is left alone until the next start. `logs` is the directory's own mapping, so that new and deleted logs are
    seen."""

    def __init__(self, storage: Storage, directory: str, logs: Mapping[Partition, PartitionLog]) -> None:
        self.storage = storage
        self.logs = logs
        self.settings = CleanerConfig()
        self.path = f"{directory}/{CHECKPOINT}"
        self.checkpoints = self._read_checkpoints()
        self.uncleanable: dict[Partition, str] = {}
        self._seen: dict[Partition, tuple[PartitionLog, int]] = {}  # with how many truncations
        self._stale = False  # the checkpoint file names a log that is not the one it was written for

    def _read_checkpoints(self) -> dict[Partition, int]:
        try:
            return read_offsets(self.storage.disk, self.path)
        except ValueError as error:
            log.warning("%s; every compacted log will be cleaned from its start", error)
            return {}

    async def run(self) -> None:
        """Cleans what has to be cleaned, until cancelled."""
        while True:
            settings = self.settings
            cleaned = await self.clean_filthiest() if settings.enabled else None
            if self._stale:
                await self._write_checkpoints()
            if cleaned is None:
                await asyncio.sleep(settings.backoff_ms / 1000)

    def forget(self, topic: str, partition: int) -> None:
        """To be called when a log is deleted: one that is made later under its name is another."""
        self.uncleanable.pop((topic, partition), None)
        self._seen.pop((topic, partition), None)
        self._stale |= self.checkpoints.pop((topic, partition), None) is not None

    async def clean_filthiest(self) -> Tally | None:
        """Cleans one log and says what it did; None when none had to be cleaned, or it failed. A failure is its log's
        own: it is noted there (`uncleanable`, or offline), or the log waits for another time."""
        chosen = self.choose()
        if chosen is None:
            return None
        of, wanted = chosen
        tally = Tally()
        try:
            job = cleaning_job.job_for(of, wanted, self.storage.runtime.now_ms())
            reached = await self._clean(job, tally)
            if self.logs.get((of.topic, of.partition)) is of:
                self.checkpoints[of.topic, of.partition] = reached
            await self._write_checkpoints()
        except Changed as error:
            log.info("compaction of %s stopped: %s", of, error)
        except ValueError as error:  # a CorruptSegment among them
            self._leave_alone(of, error)
        except KafkaError as error:
            log.error("compaction of %s ended: %s", of, error)
        except OSError as error:
            if is_full(error):
                log.warning("compaction of %s waits: %s", of, error)
            else:
                of.io_failed("compaction", of.directory, error)
        else:
            log.info(
                "compacted %s up to offset %d: %d bytes became %d, %d records %d",
                *(of, reached, tally.bytes_read, tally.bytes_kept, tally.records_read, tally.records_kept),
            )
            return tally
        return None

    def choose(self) -> tuple[PartitionLog, ToClean] | None:
        """What to clean next; None when no log has to be."""
        now_ms = self.storage.runtime.now_ms()
        return filthiest(
            (of, wanted)
            for partition, of in list(self.logs.items())
            if of.config.cleanup_compact and len(of.segments) > 1 and of.failed is None
            if partition not in self.uncleanable and (wanted := self._wanted(partition, of, now_ms)) is not None
        )

    def _wanted(self, partition: Partition, of: PartitionLog, now_ms: int) -> ToClean | None:
        now = (of, of.truncations)
        if self._seen.setdefault(partition, now) != now:
            self.forget(*partition)  # what was clean may have been replaced by something else
            self._seen[partition] = now
        if not cleaning_job.can_clean(of):
            return None  # the next time
        try:
            return to_clean(
                cleaning_job.facts_of(of),
                of.config,
                start=of.start,
                end=of.end,
                stable=of.last_stable_offset,
                checkpoint=self.checkpoints.get(partition),
                now_ms=now_ms,
            )
        except ValueError as error:
            self._leave_alone(of, error)
        except OSError as error:
            of.io_failed("compaction", of.directory, error)
        return None

    def _leave_alone(self, of: PartitionLog, error: ValueError) -> None:
        log.error("%s can not be compacted and is left alone: %s", of, error)
        self.uncleanable[of.topic, of.partition] = str(error)

    async def _clean(self, job: Job, tally: Tally) -> int:
        """Returns the offset that the cleaning reached."""
        disk = self.storage.disk
        files = OpenFiles(disk)
        offsets = KeyOffsets(self.settings.dedupe_buffer_bytes, job.wanted.first_dirty)
        try:
            await self._paced(cleaning_job.index_keys(files, job, offsets))
            found = cleaning_job.groups(job, offsets.latest + 1)
            compaction = await self._off_thread(cleaning_job.second_pass, files, job, offsets, found, tally)
            for group in found:
                await self._replace(files, job, group, compaction)
        except FileNotFoundError as error:
            if self._is_as_it_was(job, job.sources):
                raise
            raise Changed(f"{error.filename} is gone") from error
        finally:
            files.close_all()
        return offsets.latest + 1

    async def _replace(self, files: OpenFiles, job: Job, group: Sequence[Source], compaction: Compaction) -> None:
        of, disk = job.log, self.storage.disk
        new = swap.cleaned_segment(files, of.directory, group[0].facts.base, job.now_ms)
        try:
            await self._paced(cleaning_job.rewrite_group(files, group, compaction, new))
            if not self._is_as_it_was(job, group):
                raise Changed(f"its segments from {new.base} on are not what they were")
        except BaseException:  # also when the broker stops: nothing half-written is left behind
            files.close_all()
            swap.discard(disk, new)
            raise
        files.close_all()
        swap.swap_in(of, [source.segment for source in group], new, self.storage.runtime.now_ms())
        await self._off_thread(disk.sync_directory, of.directory)

    def _is_as_it_was(self, job: Job, sources: Sequence[Source]) -> bool:
        of = job.log
        return self.logs.get((of.topic, of.partition)) is of and job.still_holds(sources)

    async def _paced(self, steps: Iterator[int]) -> None:
        """Runs steps off the protocol's thread, each of which says how many bytes it moved; not faster than the
        settings allow."""
        loop = asyncio.get_running_loop()
        began, moved = loop.time(), 0
        while (step := await self._off_thread(next, steps, None)) is not None:
            moved += step
            ahead = moved / self.settings.io_max_bytes_per_second - (loop.time() - began)
            if ahead > 0:
                await asyncio.sleep(ahead)

    async def _off_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As `Runtime.offload`; but when the caller is cancelled, waits for the thread, which still uses the caller's
        files."""
        running = asyncio.ensure_future(self.storage.runtime.run_in_thread(call, *args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    async def _write_checkpoints(self) -> None:
        known = {partition: at for partition, at in self.checkpoints.items() if partition in self.logs}
        self.checkpoints, self._stale = known, False
        await self._off_thread(self.storage.disk.replace_file, self.path, encode_offsets(known))
