"""Opening a partition's folder: after a clean stop, after a crash, or new.

After a clean stop only the last few KiB are read. After a crash the batches above the recovery
point are read and their CRCs checked; indexes, epochs and producers follow from them. The first
bytes that are no batch end the log: a torn tail is cut off. Everything below the recovery point was
on the device. So corruption there is not cut off but takes the partition offline, and the broker's
log names the file and the offset.
"""

import logging
from typing import Final
from uuid import UUID

import msgspec

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import encode_topic_id, read_topic_id
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import write_file
from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.log.log_state import FlushState, LogState
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_rebuild import rebuild_producer_states, replay_batch
from ottla_broker.log.producer_snapshots import ProducerSnapshots
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.segment import Segment
from ottla_broker.log.segment_swap import finish_swaps
from ottla_broker.log.segments import Segments
from ottla_broker.log.storage import Storage, is_out_of_resources
from ottla_broker.log.validation import MAGIC
from ottla_broker.wire.batch import BatchHeader, Buffer, has_valid_crc
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_FAILED_ROLL: Final = "it is empty and the segment before it has its offsets"


class LogCheckpoint(msgspec.Struct, frozen=True):
    """A partition's state according to the directory's checkpoint files. `clean`: the last stop was
    clean.

    `gapless`: segments follow each other without a gap, as those that this broker writes do
    (`log.rolling`, `log.compaction`): a gap is a loss, and after a crash the log ends before it.
    Apache Kafka's compaction leaves gaps.
    """

    clean: bool = False
    recovery_point: int = 0
    start: int = 0
    gapless: bool = True


def create_log(
    storage: Storage, directory: str, topic: str, partition: int, topic_id: UUID | None, config: LogConfig
) -> PartitionLog:
    """A new partition's folder with one empty segment. Raises OSError."""
    storage.disk.make_directory(directory)
    if topic_id is not None:
        write_file(storage.disk, f"{directory}/{file_names.PARTITION_METADATA}", encode_topic_id(topic_id))
    log = PartitionLog(topic, partition, directory, config, storage, topic_id=topic_id)
    log.segments = Segments([Segment.create(storage.files, directory, log.start, now_ms=storage.runtime.now_ms())])
    return log


def open_log(
    storage: Storage, directory: str, topic: str, partition: int, config: LogConfig, checkpoint: LogCheckpoint
) -> PartitionLog:
    """Opens an existing partition's folder. A damaged partition has `failure` set. Raises OSError
    only if the disk is full or file descriptors are exhausted."""
    log = PartitionLog(topic, partition, directory, config, storage, checkpoint.start)
    recovery = LogRecovery(log, checkpoint)
    try:
        recovery.run()
        return log
    except (CorruptSegment, ValueError) as error:
        reason = str(error)
    except OSError as error:
        # The partition may be intact: it can be opened again when there are resources.
        if is_out_of_resources(error):
            raise
        reason = f"{error.filename or directory}: {error.strerror or error}"
    # Without records, at the offsets in the checkpoint files.
    damaged = PartitionLog(topic, partition, directory, config, storage, checkpoint.start, log.topic_id)
    damaged.flush = FlushState(checkpoint.recovery_point, checkpoint.recovery_point)
    damaged.end = max(checkpoint.start, checkpoint.recovery_point)
    damaged.take_offline(KafkaError(ErrorCode.kafka_storage_error, reason))
    return damaged


class LogRecovery:
    """The opening of one folder. It fills the state of a log that has no records yet."""

    def __init__(self, log: LogState, checkpoint: LogCheckpoint) -> None:
        self.log = log
        self.checkpoint = checkpoint
        self._disk = log.storage.disk
        self._now_ms = log.storage.runtime.now_ms()
        self._index_interval = log.config.index_interval_bytes
        # The segment that the recovery point lies in, if it has no index.
        self._unindexed: Segment | None = None

    def run(self) -> None:
        """Recovers the log. Raises OSError, CorruptSegment, ValueError (a small file that is
        damaged).
        """
        log, start = self.log, self.checkpoint.start
        log.topic_id = self._read_topic_id()
        names = finish_swaps(log.storage, log.directory)
        log.epochs = LeaderEpochs.load(self._disk, log.epochs.path)
        log.snapshots = ProducerSnapshots(self._disk, log.directory, _offsets(names, file_names.SNAPSHOT))
        bases = sorted(_offsets(names, file_names.LOG))
        if not bases:
            self._start_empty()
        else:
            log.segments = Segments(self._without_failed_rolls([self._segment(base) for base in bases]))
            self._rebuild_missing_indexes(set(names))
            if self.checkpoint.clean:
                self._open_after_clean_stop()
            else:
                log.end = self._recover_after_crash()
            if log.end < start:
                self._log_repair(
                    log.directory, f"emptied, because it ended at offset {log.end}, below its start {start}"
                )
                for segment in log.segments:
                    segment.remove()
                self._start_empty()
        self._finish()

    def _start_empty(self) -> None:
        log = self.log
        log.end, log.producers = self.checkpoint.start, ProducerStates()
        log.segments = Segments([Segment.create(log.storage.files, log.directory, log.end, now_ms=self._now_ms)])

    def _finish(self) -> None:
        log = self.log
        log.start = log.high_watermark = max(self.checkpoint.start, log.segments[0].base)
        log.epochs.truncate_from_end(log.end)
        log.epochs.truncate_from_start(log.start)
        log.snapshots.keep_only(set(log.segments.bases))
        for segment in log.segments:
            if segment is not log.segments.active:
                segment.unload_indexes()
        log.segments.active.recount_unindexed_bytes()
        point = log.end if self.checkpoint.clean else min(self.checkpoint.recovery_point, log.end)
        log.flush = FlushState(point, point)

    def _log_repair(self, path: str, repair: str) -> None:
        logger.warning("%s-%d: %s: %s", self.log.topic, self.log.partition, path, repair)

    def _read_topic_id(self) -> UUID | None:
        path = f"{self.log.directory}/{file_names.PARTITION_METADATA}"
        try:
            return read_topic_id(self._disk, path)
        except ValueError as error:
            if self.checkpoint.clean or self.checkpoint.recovery_point > 0:
                raise
            self._log_repair(path, f"removed, because nothing in this partition had reached the device: {error}")
            self._disk.remove(path)
            return None

    def _segment(self, base: int) -> Segment:
        segment = Segment(self.log.storage.files, self.log.directory, base, created_ms=self._now_ms)
        segment.size = self._disk.file_size(segment.path)
        return segment

    def _without_failed_rolls(self, segments: list[Segment]) -> list[Segment]:
        """Removes empty segments of failed rolls; appends continued in the segments before them.

        An empty last segment is kept unless the recovery point shows that the one before it has its
        offsets. `_recover_after_crash` decides the other cases.
        """
        kept = segments[:1]
        for segment in segments[1:]:
            is_last = segment is segments[-1]
            if segment.size or (is_last and not self._reaches_into(kept[-1], segment.base)):
                kept.append(segment)
            else:
                self._log_repair(segment.path, f"removed: {_FAILED_ROLL}")
                segment.remove()
        return kept

    def _reaches_into(self, segment: Segment, offset: int) -> bool:
        if not self.checkpoint.clean:
            return self.checkpoint.recovery_point > offset
        try:
            return segment.next_offset() > offset
        except CorruptSegment:
            return False

    def _rebuild_missing_indexes(self, names: set[str]) -> None:
        """Rebuilds missing indexes, after a crash only those below the recovery point: above it
        `_recover_after_crash` rebuilds all."""
        recovery_start = (
            len(self.log.segments)
            if self.checkpoint.clean
            else self.log.segments.index_of_offset(self.checkpoint.recovery_point)
        )
        for at, segment in enumerate(self.log.segments):
            present = all(path.rpartition("/")[2] in names for path in (segment.offsets.path, segment.times.path))
            if present or segment.size <= self._index_interval:
                continue
            if at < recovery_start:
                self._log_repair(segment.path, "rebuilt an index that was missing")
                segment.rebuild_indexes(self._index_interval)
            elif at == recovery_start:
                self._unindexed = segment

    # --- after a clean stop

    def _open_after_clean_stop(self) -> None:
        active = self.log.segments.active
        try:
            self.log.end = active.next_offset()
        except CorruptSegment:
            active.rebuild_indexes(self._index_interval)
            self._log_repair(active.offsets.path, "rebuilt, because it did not fit its log")
            self.log.end = active.next_offset()
        # Without any snapshot there never was a producer.
        if self.log.snapshots.offsets:
            self.log.producers = rebuild_producer_states(self.log, self.log.end)

    # --- after a crash

    def _recover_after_crash(self) -> int:
        """Returns the offset where the log ends."""
        log, point, segments = self.log, self.checkpoint.recovery_point, list(self.log.segments)
        first = log.segments.index_of_offset(point)
        # The file of the epochs may be older than the batches above the recovery point, which have
        # the epochs themselves.
        log.epochs.truncate_from_end(point)
        end = segments[first].base
        for at in range(first, len(segments)):
            segment = segments[at]
            file_size = segment.size
            if not file_size and segment.base < end:
                self._remove(segments[at:], _FAILED_ROLL)
                break
            if segment.base < point:
                end = self._recover_tail(segment, point)
            else:
                if at == first:
                    log.producers = rebuild_producer_states(log, segment.base)
                end = self._rescan(segment, point)
            later = segments[at + 1 :]
            if segment.size < file_size:
                cut = file_size - segment.size
                self._log_repair(segment.path, f"cut off {cut} bytes after offset {end} that were no whole batches")
                self._remove(later, "it follows the end of the log")
                break
            if self.checkpoint.gapless and later and end < later[0].base:
                self._remove(later, f"the segment before it ends at offset {end}")
                break
        log.snapshots.remove_above(end)
        return end

    def _recover_tail(self, segment: Segment, point: int) -> int:
        """Recovers what follows the recovery point inside a segment; the index finds where that
        begins."""
        file_size = segment.size
        found = self._find_first_batch_at(segment, point)
        if found is None:
            self._log_repair(segment.offsets.path, "rebuilt, because it did not fit its log")
            self.log.producers = rebuild_producer_states(self.log, segment.base)
            return self._rescan(segment, point)
        position, expected = found
        segment.size = position
        segment.truncate_indexes_to(point)
        segment.recount_unindexed_bytes()
        self.log.producers = rebuild_producer_states(self.log, point)
        return self._scan_batches(segment, position, file_size, expected, point)

    def _find_first_batch_at(self, segment: Segment, point: int) -> tuple[int, int] | None:
        """(position, offset) of the first batch that ends at or above the recovery point. None if
        the index is wrong."""
        if segment is self._unindexed or not segment.offsets.is_sound(segment.size) or not segment.times.is_sound():
            return None
        position, expected = segment.offsets.lookup_position(point - 1), segment.base
        try:
            for found in segment.iter_batches(position):
                if found.base_offset < expected or found.base_offset > found.last_offset:
                    return None
                if found.last_offset >= point:
                    break
                position, expected = found.position + found.size, found.last_offset + 1
        except CorruptSegment:
            return (position, expected) if expected == point else None
        return position, expected

    def _rescan(self, segment: Segment, protected: int) -> int:
        """Reads a whole segment and rebuilds its indexes. Returns the offset where it ends."""
        file_size = segment.size
        segment.size = 0
        segment.clear_indexes()
        return self._scan_batches(segment, 0, file_size, segment.base, protected)

    def _scan_batches(self, segment: Segment, position: int, file_size: int, expected: int, protected: int) -> int:
        """Reads and checks batches from `position` on. Returns the offset after the last one.

        An invalid batch below offset `protected` raises CorruptSegment; above, it ends the log.
        """
        interval, epochs, producers = self._index_interval, self.log.epochs, self.log.producers
        try:
            for at, data, header in segment.iter_whole_batches(position, file_size):
                position = at
                if (fault := _find_fault(header, data, expected)) is not None:
                    raise CorruptSegment(segment.path, at, fault)
                if header.leader_epoch > epochs.latest_epoch():
                    epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0 and (aborted := replay_batch(producers, header, data, self._now_ms)):
                    segment.transactions.append(aborted)
                segment.index_batch(at, header.size, header.last_offset, header.max_timestamp, interval)
                expected = header.next_offset
        except (CorruptSegment, KafkaError) as error:
            if expected < protected:
                raise CorruptSegment(
                    segment.path, position, f"{error} (offset {expected}; all below {protected} was on the device)"
                ) from error
            file = self.log.storage.files.get(segment.path)
            file.truncate(segment.size)
            # Otherwise a second loss of power could restore what was cut off, when this segment is
            # no longer the last.
            file.sync()
        segment.seal()
        return expected

    def _remove(self, segments: list[Segment], reason: str) -> None:
        """Removes segments at the log's end, the last one first, so that a crash leaves no hole."""
        if segments:
            self.log.segments.replace(segments, [])
        for segment in reversed(segments):
            self._log_repair(segment.path, f"removed: {reason}")
            segment.remove()


def _find_fault(header: BatchHeader, data: Buffer, expected: int) -> str | None:
    if header.magic != MAGIC:
        return f"message format {header.magic} instead of {MAGIC}"
    if header.base_offset < expected or header.last_offset_delta < 0:
        return f"offset {header.base_offset} instead of {expected} or more"
    return None if has_valid_crc(data, header) else f"the CRC of the batch at offset {header.base_offset} is wrong"


def _offsets(names: list[str], suffix: str) -> list[int]:
    return [offset for name in names if name.endswith(suffix) and (offset := file_names.offset_of(name)) is not None]
