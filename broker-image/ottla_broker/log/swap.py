"""Putting a cleaned segment in the place of those that it replaces, so that a crash at any step loses nothing.

1. Its files are written and synced under `.cleaned` names. A crash: they are removed, the old segments are all there.
2. They are renamed to `.swap`, the log last. A crash: an index alone is of no use and is built anew; once the log is
`.swap`, the opening of the folder (`log.leftovers`) finishes what follows. 3. The old files are renamed to `.deleted`,
oldest first, so that never a value comes back behind which a tombstone was. 4. `.swap` is taken off the names.

These are Apache Kafka's names and steps: either program finishes what the other began.
"""

from collections.abc import Sequence

from ottla_broker.log import file_names
from ottla_broker.log.disk import Disk
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.retention import retire
from ottla_broker.log.segment import Segment


def cleaned_segment(files: OpenFiles, directory: str, base: int, now_ms: int) -> Segment:
    """A new, empty segment under `.cleaned` names. OSError."""
    segment = Segment(files, directory, base, size=0, now_ms=now_ms)
    segment.path += file_names.CLEANED
    segment.offsets.path += file_names.CLEANED
    segment.times.path += file_names.CLEANED
    segment.transactions.path += file_names.CLEANED
    for path in segment.paths:
        files.disk.remove(path)  # of a cleaning that was stopped
    for path in segment.paths[:3]:
        files.create(path)
    return segment


def sync(disk: Disk, segment: Segment) -> None:
    """Brings a segment's files, and their names, to the device. Blocks."""
    for path in segment.paths:
        if disk.exists(path):
            file = disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
    disk.sync_directory(segment.directory)


def discard(disk: Disk, segment: Segment) -> None:
    """Removes a `.cleaned` segment, the log last: an index without its log is nothing."""
    for path in reversed(segment.paths):
        disk.remove(path)


def swap_in(log: PartitionLog, old: Sequence[Segment], cleaned: Segment, now_ms: int) -> Segment:
    """Replaces `old`, neighbours and all closed, by the synced segment with `.cleaned` names; on the protocol's thread.
    The folder is the caller's to sync. KafkaError KAFKA_STORAGE_ERROR, with the log offline, when a rename fails."""
    disk = log.storage.disk
    new = Segment(
        log.storage.files,
        log.directory,
        cleaned.base,
        size=cleaned.size,
        now_ms=old[-1].created_ms,
        jitter_ms=old[-1].jitter_ms,
    )
    moves = [(path, path.removesuffix(file_names.CLEANED)) for path in reversed(cleaned.paths) if disk.exists(path)]
    try:
        for path, final in moves:
            disk.rename(path, final + file_names.SWAP)
        log.segments.replace(old, [new])
        for segment in old:
            retire(log, segment, now_ms)
        for _, final in moves:
            disk.rename(final + file_names.SWAP, final)
    except OSError as error:
        raise log.io_failed("swap of a compacted segment", new.path, error) from error
    log.clear_tail_cache()  # it may hold records of an aborted transaction that no index names any more
    log.touched = True
    return new
