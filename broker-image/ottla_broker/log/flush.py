"""Bringing a log to stable storage, off the event loop's thread.

A *sync* makes records durable (`flush.messages`; all that wait at the same time share one fsync). A
*checkpoint* makes indexes, leader epochs and producer state durable too, and so moves the recovery
point: a restart reads nothing below it.
"""

import asyncio
from contextlib import suppress

import msgspec

from ottla_broker.log import file_names
from ottla_broker.log.disk import Disk
from ottla_broker.log.log_state import LogState
from ottla_broker.log.producer_snapshots import encode_producer_snapshot


class FlushWork(msgspec.Struct, frozen=True):
    """What one flush writes to stable storage: `contents`, small files that are replaced as a
    whole, then the files at `paths`, then the entries of `directories`.

    `end`: the log end offset. `last_batch_end`: the end of the last batch, which is lower if a
    truncation left the log end in a hole. The recovery point must not lie in a hole: it would
    protect bytes that are written there later. `truncation_count`, `creation_count`: those of
    `FlushState` when the flush began.
    """

    end: int
    last_batch_end: int
    truncation_count: int
    creation_count: int
    paths: tuple[str, ...]
    directories: tuple[str, ...]
    contents: tuple[tuple[str, bytes], ...] = ()


def flush_to_device(disk: Disk, work: FlushWork) -> None:
    """Writes and syncs the files of `work`. Blocks until that is done. Raises OSError. Appends may
    continue meanwhile: fsync on any descriptor of a file syncs all of it.
    """
    for path, data in work.contents:
        disk.replace_file(path, data)
    for path in work.paths:
        # Retention or compaction may have removed the file: then nothing in it has to be kept.
        with suppress(FileNotFoundError):
            file = disk.open(path, read_only=True)
            try:
                file.sync()
            finally:
                file.close()
    for directory in work.directories:
        disk.sync_directory(directory)


def is_checkpointed(log: LogState) -> bool:
    """True if a checkpoint has reached the log's end, so that a restart would read nothing."""
    return log.flush.recovery_point == log.end and not log.epochs.is_dirty


async def wait_until_synced(log: LogState, offset: int) -> None:
    """Returns when all records below `offset` that the log still has are durable. Raises
    KafkaError: KAFKA_STORAGE_ERROR."""
    state = log.flush
    while state.flushed_offset < min(offset, log.end):
        if log.failure is not None:
            raise log.failure
        if state.running_sync is None:
            state.running_sync = asyncio.ensure_future(_sync(log))
        await asyncio.shield(state.running_sync)


async def _sync(log: LogState) -> None:
    try:
        await _flush(log, _plan_sync(log))
    finally:
        log.flush.running_sync = None


async def checkpoint(log: LogState) -> None:
    """Moves the recovery point to the end of the log's last batch, unless a truncation comes
    meanwhile. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    work = _plan_checkpoint(log)
    await _flush(log, work)
    if work.truncation_count == log.flush.truncation_count:
        log.flush.recovery_point = max(log.flush.recovery_point, work.last_batch_end)
        log.snapshots.add(work.last_batch_end)
        log.snapshots.keep_only(set(log.segments.bases))
        log.is_checkpoint_stale = True


async def _flush(log: LogState, work: FlushWork) -> None:
    state, directory, runtime = log.flush, log.directory, log.storage.runtime
    began_s = runtime.processing_clock()
    try:
        await runtime.run_in_thread(flush_to_device, log.storage.disk, work)
        log.storage.flush_times.observe(runtime.processing_clock() - began_s)
    except OSError as error:
        if log.directory != directory:
            return  # the log has moved, and its former folder is gone
        raise log.storage_error("fsync", log.directory, error) from error
    if log.directory != directory:
        return
    if work.directories:
        state.is_folder_name_durable = True
        state.durable_creation_count = max(state.durable_creation_count, work.creation_count)
    if work.truncation_count == state.truncation_count:
        state.flushed_offset = max(state.flushed_offset, work.end)


def _plan_sync(log: LogState) -> FlushWork:
    state = log.flush
    paths = tuple(segment.path for segment in log.segments.from_offset(state.flushed_offset))
    directories: tuple[str, ...] = ()
    if state.has_names_at_risk:
        directories = directories_to_sync(log)
        paths += (f"{log.directory}/{file_names.PARTITION_METADATA}",)
    return FlushWork(log.end, log.end, state.truncation_count, state.creation_count, paths, directories)


def _plan_checkpoint(log: LogState) -> FlushWork:
    state, segments = log.flush, log.segments.from_offset(log.flush.recovery_point)
    for segment in segments:
        with log.storage_errors("write of an index", segment.path, segment.base):
            segment.save_indexes()
    with log.storage_errors("read", log.segments.active.path, log.end):
        end = log.segments.active.next_offset()
    contents = [(log.snapshots.path(end), encode_producer_snapshot(log.producers))]
    if log.epochs.is_dirty:
        contents.append((log.epochs.path, log.epochs.encode()))
        log.epochs.is_dirty = False
    paths = tuple(path for segment in segments for path in segment.paths)
    paths += (f"{log.directory}/{file_names.PARTITION_METADATA}",)
    directories = directories_to_sync(log)
    return FlushWork(log.end, end, state.truncation_count, state.creation_count, paths, directories, tuple(contents))


def directories_to_sync(log: LogState) -> tuple[str, ...]:
    """The partition's folder, and its parent until the folder's own name is durable.

    A new file is durable when the directory that names it was synced.
    """
    folder = log.directory
    return (folder,) if log.flush.is_folder_name_durable else (folder, folder.rpartition("/")[0] or "/")
