"""Truncation of a topic that becomes mirrored, to the offset at which its log diverges from the
source's.

The metadata contain that offset and the leader epoch in which it was reported
(`MirroredPartitionRecord.joined`, `joined_epoch`). Invariant: no record of that epoch or an older
one remains at or above that offset. A leader truncates as its first action in an epoch, before a
follower can fetch, so that no follower's old log end counts. Followers truncate where their log
diverges from their leader's, as always.

The diverged records are saved before, as segment files that DumpLogSegments reads:
`<log.dirs>/<topic>-<partition>/diverged/offsets-<first>-<last>-epoch-<n>/<first>.log`. The folder
appears when it is complete.

A source that has lost records is another matter: `mirrored_partition` stops, or `appended_offsets`
continues.
"""

from typing import Final

from ottla_broker.log import file_names
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import Buffer, iter_batches

FOLDER: Final = "diverged"
UNFINISHED: Final = ".unfinished"
READ_BYTES: Final = 1 << 20
MAX_FILE_BYTES: Final = 1 << 30


def is_truncated(log: PartitionLog, joined: int, joined_epoch: int) -> bool:
    """True if no record of `joined_epoch` or an older one is at or above `joined`."""
    newer_start = next((start for epoch, start in log.epochs.entries() if epoch > joined_epoch), log.end)
    return newer_start <= max(joined, log.start)


def truncate_if_saved(partition: Partition, joined: int, joined_epoch: int) -> None:
    """Called when this broker's leader epoch begins: truncates the log to `joined`, if this broker
    has saved the diverged records or if its log is empty and ends above `joined`.

    Otherwise the leader of a later epoch truncates it. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    log = partition.log
    # An empty log that ends above `joined` has either continued at the source's log start, or had
    # all of its records deleted before it joined; then the source has records from `joined` on.
    is_empty_behind = log.start == log.end > joined
    if is_empty_behind or (not is_truncated(log, joined, joined_epoch) and is_saved(log, joined, joined_epoch)):
        partition.truncate_as_leader(joined)


def diverged_folder(log: PartitionLog, offset: int, epoch: int) -> str:
    """Folder in which the leader of `epoch` saves its records from `offset` on.

    Its name tells which records it has, because within an epoch a log only grows.
    """
    return f"{log.directory}/{FOLDER}/offsets-{first_diverged_offset(log, offset)}-{log.end - 1}-epoch-{epoch}"


def first_diverged_offset(log: PartitionLog, offset: int) -> int:
    """`offset`, or the log start if that is above it because records were deleted that the source
    never had.
    """
    return max(offset, log.start)


def is_saved(log: PartitionLog, offset: int, epoch: int) -> bool:
    return log.storage.disk.exists(diverged_folder(log, offset, epoch))


async def save_diverged_records(log: PartitionLog, offset: int, epoch: int) -> str:
    """Writes the records from `offset` to the log's end to files and syncs them; returns their
    folder.

    The log must not change meanwhile. Raises OSError; KafkaError: KAFKA_STORAGE_ERROR.
    """
    folder, disk, run_in_thread = (
        diverged_folder(log, offset, epoch),
        log.storage.disk,
        log.storage.runtime.run_in_thread,
    )
    if disk.exists(folder):
        return folder
    parent, unfinished = f"{log.directory}/{FOLDER}", f"{folder}{UNFINISHED}"
    offset, end = first_diverged_offset(log, offset), log.end
    disk.make_directory(parent)
    for name in disk.list(parent):
        if name.endswith(UNFINISHED):
            await run_in_thread(disk.remove_tree, f"{parent}/{name}")
    disk.make_directory(unfinished)
    while offset < end:
        offset = await _save_file(log, offset, end, unfinished)
    await run_in_thread(disk.sync_directory, unfinished)
    disk.rename(unfinished, folder)
    for directory in (parent, log.directory):
        await run_in_thread(disk.sync_directory, directory)
    return folder


async def _save_file(log: PartitionLog, offset: int, end: int, folder: str) -> int:
    """Writes one file and returns the offset at which the next begins."""
    run_in_thread = log.storage.runtime.run_in_thread
    file = log.storage.disk.open(file_names.segment_file(folder, offset, file_names.LOG), create=True)
    try:
        while offset < end and file.size() < MAX_FILE_BYTES:
            data = bytes(log.read(offset, READ_BYTES, up_to=end))
            if not data:  # no batches are left: the log ends with a gap
                offset = end
                break
            await run_in_thread(file.append, (data,))
            offset = _next_offset(data)
        await run_in_thread(file.sync)
    finally:
        file.close()
    return offset


def _next_offset(data: Buffer) -> int:
    return max(header.last_offset for _, header in iter_batches(data)) + 1
