"""Bringing a log to stable storage, off the protocol's thread.

Two depths: a *sync* makes records durable (`flush.messages`, group commit: all who wait share one fsync); a *checkpoint* also
makes indexes, epochs and producers durable and so moves the recovery point, behind which a restart reads nothing.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_broker.log import file_names
from ottla_broker.log.disk import Disk
from ottla_broker.log.producer_snapshot import encode_producer_snapshot
from ottla_broker.log.segment import CorruptSegment

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class Work:
    """What to bring to the device. `end`: of the log; `recorded`: of its last batch, lower where truncation has left the end in a hole (a
    recovery point there would protect bytes that are not its own). `contents`: small files to write whole first. `directories`: where names
    are new; `names`: how often there had been new ones."""

    end: int
    recorded: int
    truncations: int
    paths: tuple[str, ...]
    contents: tuple[tuple[str, bytes], ...]
    directories: tuple[str, ...]
    names: int


def do(disk: Disk, work: Work) -> None:
    """Blocks for the device. Safe beside appends: any descriptor of a file syncs all of it."""
    for path, data in work.contents:
        disk.replace_file(path, data)
    for path in work.paths:
        with suppress(FileNotFoundError):  # retention or compaction took it meanwhile: nothing left to keep
            file = disk.open(path, read_only=True)
            try:
                file.sync()
            finally:
                file.close()
    for directory in work.directories:
        disk.sync_directory(directory)


class Flush:
    """`flushed`: records below are durable. `recovery_point`: below, everything is."""

    __slots__ = (
        "_folder_kept",
        "_log",
        "_names_kept",
        "_running",
        "flushed",
        "new_names",
        "recovery_point",
        "unflushed_since_ms",
    )

    def __init__(self, log: "PartitionLog", recovery_point: int) -> None:
        self._log = log
        self.flushed = recovery_point
        self.recovery_point = recovery_point
        self.new_names = 1  # how often files were made in the folder …
        self._names_kept = 0  # … and of those, what is known to be on the device
        self._folder_kept = False  # whether the folder's own name is
        self.unflushed_since_ms = -1
        self._running: asyncio.Task[None] | None = None

    @property
    def names_at_risk(self) -> bool:
        """Whether files were made that a loss of power could leave without a name."""
        return self._names_kept < self.new_names

    @property
    def clean(self) -> bool:
        """Whether everything is durable."""
        return self.recovery_point == self._log.end and not self._log.epochs.dirty

    async def synced(self, offset: int) -> None:
        while self.flushed < min(
            offset, self._log.end
        ):  # what a follower has cut off meanwhile is nobody's to wait for
            if self._log.failed is not None:
                raise self._log.failed
            if self._running is None:
                self._running = asyncio.ensure_future(self._sync())
            await asyncio.shield(self._running)

    async def _sync(self) -> None:
        try:
            await self._run(self._records())
        finally:
            self._running = None

    async def checkpoint(self) -> None:
        """Moves the recovery point to the log's present end. KafkaError: KAFKA_STORAGE_ERROR."""
        work = self._everything()
        await self._run(work)
        if work.truncations == self._log.truncations:
            self.recovery_point = max(self.recovery_point, work.recorded)
            log = self._log
            log.snapshots.note(work.recorded)
            log.snapshots.keep_only(set(log.segments.bases))
            log.touched = True

    async def _run(self, work: Work) -> None:
        log = self._log
        try:
            await log.storage.runtime.run_in_thread(do, log.storage.disk, work)
        except OSError as error:
            raise log.io_failed("fsync", log.directory, error) from error
        if work.directories:
            self._folder_kept = True
            self._names_kept = max(self._names_kept, work.names)
        if work.truncations == log.truncations:
            self.flushed = max(self.flushed, work.end)

    def _records(self) -> Work:
        log = self._log
        directories = self._directories() if self.names_at_risk else ()
        paths = tuple(segment.path for segment in log.segments.since(self.flushed))
        if directories:
            paths += (f"{log.directory}/{file_names.PARTITION_METADATA}",)
        return Work(log.end, log.end, log.truncations, paths, (), directories, self.new_names)

    def _everything(self) -> Work:
        log = self._log
        segments = log.segments.since(self.recovery_point)
        for segment in segments:
            try:
                segment.save_indexes()
            except OSError as error:
                raise log.io_failed("write of an index", segment.path, error) from error
        try:
            recorded = log.segments.active.next_offset()
        except CorruptSegment as error:
            raise log.corrupt(error, log.end) from error
        except OSError as error:
            raise log.io_failed("read", log.segments.active.path, error) from error
        contents = [(log.snapshots.path(recorded), encode_producer_snapshot(log.producers))]
        if log.epochs.dirty:
            contents.append((log.epochs.path, log.epochs.encode()))
            log.epochs.dirty = False
        paths = tuple(path for segment in segments for path in segment.paths)
        paths += (f"{log.directory}/{file_names.PARTITION_METADATA}",)
        return Work(log.end, recorded, log.truncations, paths, tuple(contents), self._directories(), self.new_names)

    def _directories(self) -> tuple[str, ...]:
        """A new file is safe when the folder that names it was synced, and a new folder when the one above was."""
        folder = self._log.directory
        return (folder,) if self._folder_kept else (folder, folder.rpartition("/")[0] or "/")

    def truncated(self, end: int) -> None:
        """The log now ends at `end`; a flush that is under way says nothing about what is written from now on."""
        self._log.truncations += 1
        self.flushed = min(self.flushed, end)
        self.recovery_point = min(self.recovery_point, end)
