"""What a topic that becomes a copy again has beyond the point up to which it and its source are one log.

The metadata say where that is and which leader epoch of ours was the last before (`MirroredPartition.joined`, `joined_epoch`). What is to be kept is
one sentence, which never ceases to hold: *no record of that epoch or an older one stays at or above that offset*. A leader cuts as the first thing it does
in an epoch, before anybody can fetch in it, so that nobody counts what a follower had before; followers cut as they always do, where their log parts
from their leader's. Whoever cuts has written what goes away to a file before.

The file has the form of a segment, so that DumpLogSegments and whatever else reads those reads it:
`<log.dirs>/<topic>-<partition>/diverged/offsets-<first>-<last>-epoch-<n>/<first>.log`. It is there whole, or not at all.
"""

import logging
from typing import Final

from ottla_broker.log import file_names
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import Buffer, iter_batches

logger = logging.getLogger(__name__)

FOLDER: Final = "diverged"
UNFINISHED: Final = ".unfinished"
CHUNK_BYTES: Final = 1 << 20
FILE_BYTES: Final = 1 << 30


def is_truncated(log: PartitionLog, joined: int, joined_epoch: int) -> bool:
    """Whether nothing at or above `joined` is left of `joined_epoch` or an older one."""
    newer = next((start for epoch, start in log.epochs.entries() if epoch > joined_epoch), log.end)
    return newer <= max(joined, log.start)


def truncate_if_saved(partition: Partition, joined: int, joined_epoch: int) -> None:
    """As a leader in the turn in which its epoch begins: cuts what is to go, if it was saved here. If it was not, a later epoch will. KafkaError:
    KAFKA_STORAGE_ERROR."""
    log = partition.log
    # An empty log does not tell whether it went on behind the source's start, or all that it had was deleted before it joined: then the source has more.
    empty_behind = log.start == log.end > joined
    if empty_behind or (not is_truncated(log, joined, joined_epoch) and is_saved(log, joined, joined_epoch)):
        partition.truncate_as_leader(joined)


def diverged_folder(log: PartitionLog, offset: int, epoch: int) -> str:
    """Where the leader of this epoch saves what lies in its log from `offset` on. Within an epoch a log only grows."""
    return f"{log.directory}/{FOLDER}/offsets-{first_diverged_offset(log, offset)}-{log.end - 1}-epoch-{epoch}"


def first_diverged_offset(log: PartitionLog, offset: int) -> int:
    """Where what lies from `offset` on begins: the log may start behind it, where records were deleted that the source never had."""
    return max(offset, log.start)


def is_saved(log: PartitionLog, offset: int, epoch: int) -> bool:
    return log.storage.disk.exists(diverged_folder(log, offset, epoch))


async def save_diverged_records(log: PartitionLog, offset: int, epoch: int) -> str:
    """Writes everything from `offset` to the log's end to files, and returns their folder when they are on the device. The log must not change
    meanwhile. OSError; KafkaError: KAFKA_STORAGE_ERROR."""
    folder, disk, offload = diverged_folder(log, offset, epoch), log.storage.disk, log.storage.runtime.run_in_thread
    if disk.exists(folder):
        return folder
    unfinished, offset, end = f"{folder}{UNFINISHED}", first_diverged_offset(log, offset), log.end
    disk.make_directory(f"{log.directory}/{FOLDER}")
    for name in disk.list(f"{log.directory}/{FOLDER}"):
        if name.endswith(UNFINISHED):
            await offload(disk.remove_tree, f"{log.directory}/{FOLDER}/{name}")
    disk.make_directory(unfinished)
    while offset < end:
        offset = await _save_file(log, offset, end, unfinished)
    await offload(disk.sync_directory, unfinished)
    disk.rename(unfinished, folder)
    for directory in (f"{log.directory}/{FOLDER}", log.directory):
        await offload(disk.sync_directory, directory)
    return folder


async def _save_file(log: PartitionLog, offset: int, end: int, folder: str) -> int:
    """One file's worth; where the next one begins."""
    offload = log.storage.runtime.run_in_thread
    file = log.storage.disk.open(file_names.segment_file(folder, offset, file_names.LOG), create=True)
    try:
        while offset < end and file.size() < FILE_BYTES:
            data = bytes(log.read(offset, CHUNK_BYTES, up_to=end))
            if not data:  # a hole at the log's end
                offset = end
                break
            await offload(file.append, (data,))
            offset = _end_of(data)
        await offload(file.sync)
    finally:
        file.close()
    return offset


def _end_of(data: Buffer) -> int:
    return max(header.last_offset for _, header in iter_batches(data)) + 1
