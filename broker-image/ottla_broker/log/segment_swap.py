"""Putting a cleaned segment in the place of those that it replaces, so that a crash at any step
loses nothing.

1. Its files are written and synced under `.cleaned` names. After a crash they are removed: the old
   segments are whole.
2. They are renamed to `.swap`, the log last. After a crash before that last renaming all of them
   are removed, because the log is still `.cleaned`. Once it is `.swap`, `finish_swaps` does the
   rest.
3. The old files are renamed to `.deleted`, oldest first, so that a deleted value never comes back
   without its tombstone.
4. `.swap` is cut off the names.

These are Apache Kafka's names and steps: either program finishes what the other began.
"""

from collections.abc import Sequence

from ottla_broker.log import file_names
from ottla_broker.log.disk import Disk
from ottla_broker.log.log_state import LogState
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.retention import mark_deleted
from ottla_broker.log.segment import Segment
from ottla_broker.log.storage import Storage


def create_cleaned_segment(files: OpenFiles, directory: str, base: int, now_ms: int) -> Segment:
    """A new, empty segment under `.cleaned` names. Raises OSError."""
    segment = Segment(files, directory, base, created_ms=now_ms, suffix=file_names.CLEANED)
    remove_cleaned_segment(files.disk, segment)
    for path in segment.paths[:3]:
        files.create(path)
    return segment


def remove_cleaned_segment(disk: Disk, segment: Segment) -> None:
    """Removes the files, the log last."""
    for path in reversed(segment.paths):
        disk.remove(path)


def sync_segment(disk: Disk, segment: Segment) -> None:
    """Syncs a segment's files and their directory entries. Blocks until that is done."""
    for path in segment.paths:
        if disk.exists(path):
            file = disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
    disk.sync_directory(segment.directory)


def swap_in(log: LogState, old: Sequence[Segment], cleaned: Segment, now_ms: int) -> None:
    """Replaces `old`, which are closed neighbours, by the synced segment under `.cleaned` names.

    Runs on the event loop's thread; the caller syncs the folder. Raises KafkaError:
    KAFKA_STORAGE_ERROR, with the log offline, when a rename fails.
    """
    disk = log.storage.disk
    new = Segment(
        log.storage.files,
        log.directory,
        cleaned.base,
        size=cleaned.size,
        created_ms=old[-1].created_ms,
        jitter_ms=old[-1].jitter_ms,
    )
    moves = [(path, path.removesuffix(file_names.CLEANED)) for path in reversed(cleaned.paths) if disk.exists(path)]
    with log.storage_errors("swap of a compacted segment", new.path, new.base):
        for path, final in moves:
            disk.rename(path, final + file_names.SWAP)
        log.segments.replace(old, [new])
        for segment in old:
            mark_deleted(log, segment, now_ms)
        for _, final in moves:
            disk.rename(final + file_names.SWAP, final)
    # The tail cache may hold records of an aborted transaction that is in no index any longer.
    log.tail.clear()
    log.is_checkpoint_stale = True


def finish_swaps(storage: Storage, directory: str) -> list[str]:
    """Cleans a partition's folder up after a crash; returns the names that it holds then, sorted.

    Removes what is `.deleted`, and what is `.cleaned`, which a cleaning or a split was still
    writing. Finishes each `.swap`; but one at or above the smallest `.cleaned` belongs to an
    unfinished cleaning or split and is removed. Removes indexes without a `.log`. Raises OSError;
    CorruptSegment of a `.swap`.
    """
    disk = storage.disk
    names = disk.list(directory)
    if any(name.endswith((file_names.DELETED, file_names.CLEANED, file_names.SWAP)) for name in names):
        cleaned = [file_names.offset_of(name) for name in names if name.endswith(file_names.CLEANED)]
        smallest = min((offset for offset in cleaned if offset is not None), default=None)
        swaps = []
        for name in names:
            offset = file_names.offset_of(name)
            if name.endswith((file_names.DELETED, file_names.CLEANED)):
                disk.remove(f"{directory}/{name}")
            elif name.endswith(file_names.SWAP) and offset is not None:
                if smallest is not None and offset >= smallest:
                    disk.remove(f"{directory}/{name}")
                else:
                    swaps.append((offset, name))
        _finish(storage, directory, swaps)
        names = disk.list(directory)
    return _remove_orphaned_indexes(disk, directory, names)


def _finish(storage: Storage, directory: str, swaps: list[tuple[int, str]]) -> None:
    disk = storage.disk
    logs = [(offset, name) for offset, name in swaps if name.endswith(file_names.LOG + file_names.SWAP)]
    if logs:
        first = min(offset for offset, _ in logs)
        end = max(_end_of_swap(storage, directory, offset) for offset, _ in logs)
        for name in disk.list(directory):
            offset = file_names.offset_of(name)
            if offset is not None and first <= offset < end and not name.endswith(file_names.SWAP):
                disk.remove(f"{directory}/{name}")
    for _, name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(file_names.SWAP)}")


def _end_of_swap(storage: Storage, directory: str, base: int) -> int:
    """The offset after the last batch of a `.log.swap` file; its base offset when it is empty."""
    segment = Segment(storage.files, directory, base, suffix=file_names.SWAP)
    segment.size = storage.disk.file_size(segment.path)
    end = base
    for found in segment.iter_batches(0):
        end = found.last_offset + 1
    storage.files.close(segment.path)
    return end


def _remove_orphaned_indexes(disk: Disk, directory: str, names: list[str]) -> list[str]:
    logs = {name[: -len(file_names.LOG)] for name in names if name.endswith(file_names.LOG)}
    kept = []
    for name in names:
        if name.endswith(file_names.INDEXES) and name.rpartition(".")[0] not in logs:
            disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept
