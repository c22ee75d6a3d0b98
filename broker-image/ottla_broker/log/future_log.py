"""A copy of a partition in another log directory, which replaces its log when the copy is complete
(KIP-113).

Appends, reads and retention continue while batches are copied. Compaction waits, because a copy of
half-compacted records could restore deleted ones. After a truncation the copy starts again. The
last batches are copied and the files exchanged in one iteration of the event loop: the log object
stays the same and has other files afterwards.

Its folder is `<topic>-<partition>.<unique id>-future`, as in Kafka. A crash leaves the log where it
was, or, between the two renames, in both directories with the same records (`find_duplicates`).
"""

import logging
from collections.abc import Sequence

from ottla_broker.log import file_names
from ottla_broker.log.config import MAX_INT32
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.reading import read_files
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.tail_cache import TailCache
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class FutureLog:
    """`current`: the log that moves, in directory `source`; `log`: the copy, in directory `target`.

    Methods raise OSError, and KafkaError: KAFKA_STORAGE_ERROR.
    """

    def __init__(self, current: PartitionLog, source: LogDir, target: LogDir) -> None:
        self.current = current
        self.source = source
        self.target = target
        unique_id = target.storage.runtime.new_uuid().hex
        self.directory = f"{target.path}/{file_names.future_folder(current.topic, current.partition, unique_id)}"
        self.log = create_log(
            target.storage, self.directory, current.topic, current.partition, current.topic_id, current.config
        )
        self._begin_copy()
        target.future_logs[current.topic, current.partition] = self.log
        current.is_moving = True

    @property
    def bytes_left(self) -> int:
        """Approximate number of bytes that are not copied yet."""
        return self.current.size_from(self.log.end) if self.log.end < self.current.end else 0

    def _begin_copy(self) -> None:
        self._truncation_count = self.current.flush.truncation_count
        self.log.truncate_fully_and_start_at(self.current.segments[0].base)

    def copy_batches(self, max_bytes: int) -> int:
        """Copies about `max_bytes` of whole batches. Returns the number of copied bytes, 0 when the
        copy is complete.
        """
        current, log = self.current, self.log
        if current.failure is not None:
            raise current.failure
        if current.flush.truncation_count != self._truncation_count or log.end < current.segments[0].base:
            self._begin_copy()  # the log was truncated, or its retention has overtaken the copy
        data = read_files(current, log.end, max_bytes, current.end, True)
        if data:
            log.append_as_follower(data, leader_epoch=MAX_INT32)
        return len(data)

    async def flush(self) -> None:
        """Syncs the copy to the device."""
        await self.log.checkpoint()

    def swap(self) -> None:
        """Copies the remaining batches, and makes the copy's files the log's own. The old folder
        stays until `remove_source`.
        """
        while self.copy_batches(MAX_INT32):
            pass
        current, target = self.current, self.target
        self._close_copy()
        folder = f"{target.path}/{file_names.partition_folder(current.topic, current.partition)}"
        target.storage.disk.rename(self.directory, folder)
        checkpoint = LogCheckpoint(recovery_point=self.log.recovery_point, start=current.start, gapless=False)
        self.directory = folder
        opened = open_log(target.storage, folder, current.topic, current.partition, current.config, checkpoint)
        if opened.failure is not None or opened.end < self.log.end:
            raise opened.failure or KafkaError(
                ErrorCode.kafka_storage_error, f"{folder} ends at offset {opened.end}, {self.log.end} were copied"
            )
        self._adopt(opened)
        key = current.topic, current.partition
        self.source.cleaner.forget_log(*key)
        del self.source.logs[key]
        target.logs[key] = current
        target.write_checkpoints_now()

    def _adopt(self, opened: PartitionLog) -> None:
        """Exchanges the files of the current log. Its offsets, producers, epochs and high watermark
        stay.
        """
        current = self.current
        for segment in current.segments:
            segment.unload()
        current.tail.clear()
        current.directory, current.storage = opened.directory, opened.storage
        current.segments, current.snapshots = opened.segments, opened.snapshots
        current.tail = TailCache(opened.storage.tails)
        current.epochs.path, current.epochs.is_dirty = opened.epochs.path, True
        current.flush.move_to(opened.flush)
        current.files_to_delete.clear()
        current.is_moving = False
        current.is_checkpoint_stale = True

    def remove_source(self, directory: str) -> None:
        """Deletes the folder that the log has left."""
        self.source.delete_folder(directory, self.current.topic, self.current.partition)

    def cancel(self) -> None:
        """Deletes the copy; the log stays where it is."""
        self.current.is_moving = False
        self._close_copy()
        try:
            self.target.delete_folder(self.directory, self.current.topic, self.current.partition)
        except KafkaError as error:
            logger.error("%s is not deleted: %s", self.directory, error)

    def _close_copy(self) -> None:
        self.target.future_logs.pop((self.current.topic, self.current.partition), None)
        self.log.clear_tail_cache()
        for segment in self.log.segments:
            segment.unload()


def find_duplicates(log_dirs: Sequence[LogDir]) -> list[tuple[LogDir, PartitionLog]]:
    """Logs whose partition is also in another directory: all but the best one of each partition.
    A log that works is better than a failed one; among those the highest end offset is best.
    """
    best: dict[TopicPartition, tuple[LogDir, PartitionLog]] = {}
    duplicates = []
    for log_dir in log_dirs:
        for key, log in log_dir.logs.items():
            known = best.setdefault(key, (log_dir, log))
            if known[1] is log:
                continue
            if log.failure is None and (known[1].failure is not None or log.end > known[1].end):
                best[key] = log_dir, log
                duplicates.append(known)
            else:
                duplicates.append((log_dir, log))
    return duplicates
