"""Opening a partition's folder: after a clean stop, after a crash, or new.

After a clean stop only the last few KiB are read. After a crash the batches above the recovery point are read and their
CRCs checked; indexes, epochs and producers follow from them. The first bytes that are no batch end the log: a torn tail
is cut off. Everything below the recovery point was on the device. So corruption there is not cut off but takes the
partition offline, with the file and the offset in the log.
"""

import logging
from dataclasses import dataclass
from uuid import UUID

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import encode_topic_id, read_topic_id
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import write_file
from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.log.log_state import FlushState
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_rebuild import rebuild_producer_states, replay_batch
from ottla_broker.log.producer_snapshots import ProducerSnapshots
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.segment import Segment
from ottla_broker.log.segment_swap import finish_swaps
from ottla_broker.log.segments import Segments
from ottla_broker.log.storage import Storage, is_out_of_space
from ottla_broker.log.validation import MAGIC
from ottla_broker.wire.batch import has_valid_crc
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """What the directory's checkpoint files say of a partition. `clean`: the last stop was clean.

    `gapless`: segments follow each other without a gap, as those that this broker writes do (`log.rolling`,
    `Compaction`): a gap is a loss. Apache Kafka's compaction leaves gaps.
    """

    clean: bool = False
    recovery_point: int = 0
    start: int = 0
    gapless: bool = True


def create_log(
    storage: Storage,
    directory: str,
    topic: str,
    partition: int,
    topic_id: UUID | None,
    config: LogConfig,
    start: int = 0,
) -> PartitionLog:
    """A new partition's folder with one empty segment. OSError."""
    disk = storage.disk
    disk.make_directory(directory)
    if topic_id is not None:
        write_file(disk, f"{directory}/{file_names.PARTITION_METADATA}", encode_topic_id(topic_id))
    segment = Segment.create(storage.files, directory, start, now_ms=storage.runtime.now_ms())
    return PartitionLog(
        topic,
        partition,
        directory,
        topic_id,
        config,
        storage,
        Segments([segment]),
        LeaderEpochs(f"{directory}/{file_names.LEADER_EPOCHS}"),
        ProducerStates(),
        ProducerSnapshots(disk, directory),
        start,
        start,
        FlushState(start, start),
    )


def open_log(
    storage: Storage, directory: str, topic: str, partition: int, config: LogConfig, checkpoint: LogCheckpoint
) -> PartitionLog:
    """An existing partition's folder. A partition that cannot be served has `failure` set; OSError only from a full disk."""
    recovery = LogRecovery(storage, directory, config, checkpoint)
    failure = None
    try:
        recovery.run()
    except (CorruptSegment, ValueError) as error:
        failure = str(error)
    except OSError as error:
        # The partition is sound: the start is tried again when there is room.
        if is_out_of_space(error):
            raise
        failure = f"{error.filename or directory}: {error.strerror or error}"
    if failure is not None:
        recovery.give_up()
    opened = PartitionLog(
        topic,
        partition,
        directory,
        recovery.topic_id,
        config,
        storage,
        recovery.segments,
        recovery.epochs,
        recovery.producers,
        recovery.snapshots,
        recovery.start,
        recovery.end,
        FlushState(recovery.recovery_point, recovery.recovery_point),
    )
    for repair in recovery.repairs:
        logger.warning("%s-%d: %s", topic, partition, repair)
    if failure is not None:
        opened.take_offline(KafkaError(ErrorCode.kafka_storage_error, failure))
    return opened


class LogRecovery:
    """The opening of one folder, step by step. `run` or `give_up` fills in what the log is made of.

    `repairs`: what was wrong and was mended, for the broker's log.
    """

    def __init__(self, storage: Storage, directory: str, config: LogConfig, checkpoint: LogCheckpoint) -> None:
        self.storage = storage
        self.directory = directory
        self.config = config
        self.checkpoint = checkpoint
        self.now_ms = storage.runtime.now_ms()
        self.repairs: list[str] = []
        self.topic_id: UUID | None = None
        self.start = self.end = checkpoint.start
        self.recovery_point = checkpoint.recovery_point
        self.segments: Segments
        self.epochs = LeaderEpochs(f"{directory}/{file_names.LEADER_EPOCHS}")
        self.snapshots = ProducerSnapshots(storage.disk, directory)
        self.producers = ProducerStates()
        # The segment that the recovery point lies in, if it has no index.
        self._unindexed: Segment | None = None

    def give_up(self) -> None:
        """Leaves a log without records, with the offsets that the checkpoint files name."""
        self.segments = Segments([self._segment(self.checkpoint.start, size=0)])
        self.start = self.checkpoint.start
        self.recovery_point = self.checkpoint.recovery_point
        self.end = max(self.start, self.recovery_point)
        self.epochs = LeaderEpochs(self.epochs.path)
        self.snapshots = ProducerSnapshots(self.storage.disk, self.directory)
        self.producers = ProducerStates()

    def run(self) -> None:
        """Recovers the log. OSError, CorruptSegment, ValueError (a small file that is damaged)."""
        disk = self.storage.disk
        self.topic_id = self._read_topic_id()
        names = finish_swaps(self.storage, self.directory)
        self.epochs = LeaderEpochs.load(disk, self.epochs.path)
        self.snapshots = ProducerSnapshots(disk, self.directory, _offsets(names, file_names.SNAPSHOT))
        bases = sorted(_offsets(names, file_names.LOG))
        if not bases:
            self._start_empty()
        else:
            self.segments = Segments(self._without_failed_rolls([self._segment(base) for base in bases]))
            self._rebuild_missing_indexes(set(names))
            if self.checkpoint.clean:
                self._open_after_clean_stop()
            else:
                self._recover_after_crash()
            if self.end < self.checkpoint.start:
                self.repairs.append(f"emptied: it ended at offset {self.end}, below its start {self.checkpoint.start}")
                for segment in self.segments:
                    segment.remove()
                self._start_empty()
        self._finish()

    def _start_empty(self) -> None:
        self.end, self.producers = self.checkpoint.start, ProducerStates()
        segment = Segment.create(self.storage.files, self.directory, self.end, now_ms=self.now_ms)
        self.segments = Segments([segment])

    def _read_topic_id(self) -> UUID | None:
        path = f"{self.directory}/{file_names.PARTITION_METADATA}"
        try:
            return read_topic_id(self.storage.disk, path)
        except ValueError as error:
            if self.checkpoint.clean or self.checkpoint.recovery_point > 0:
                raise
            self.repairs.append(f"{error}; removed, because nothing in this partition had reached the device")
            self.storage.disk.remove(path)
            return None

    def _segment(self, base: int, size: int | None = None) -> Segment:
        if size is None:
            size = self.storage.disk.file_size(file_names.segment_file(self.directory, base, file_names.LOG))
        return Segment(self.storage.files, self.directory, base, size=size, now_ms=self.now_ms)

    def _without_failed_rolls(self, segments: list[Segment]) -> list[Segment]:
        """Removes empty segments that rolls left for which the disk had no room.

        The segment before such a one went on and has its offsets. If it is the last one, only what was on the device tells
        whether it did; `_recover_after_crash` finds out the rest.
        """
        kept = segments[:1]
        for segment in segments[1:]:
            last = segment is segments[-1]
            if segment.size or (last and not self._reaches_into(kept[-1], segment.base)):
                kept.append(segment)
            else:
                self._remove_failed_roll(segment)
        return kept

    def _remove_failed_roll(self, segment: Segment) -> None:
        self.repairs.append(f"{segment.path}: removed, because it is empty and the segment before it has its offsets")
        segment.remove()

    def _reaches_into(self, segment: Segment, offset: int) -> bool:
        if not self.checkpoint.clean:
            return self.checkpoint.recovery_point > offset
        try:
            return segment.next_offset() > offset
        except CorruptSegment:
            return False

    def _rebuild_missing_indexes(self, names: set[str]) -> None:
        """What lies above the recovery point after a crash is indexed anew in any case, by `_recover_after_crash`."""
        tail = len(self.segments) if self.checkpoint.clean else self.segments.floor(self.checkpoint.recovery_point)
        for at, segment in enumerate(self.segments):
            present = all(path.rpartition("/")[2] in names for path in (segment.offsets.path, segment.times.path))
            if present or segment.size <= self.config.index_interval_bytes:
                continue
            if at < tail:
                self.repairs.append(f"{segment.path}: rebuilt an index that was missing")
                segment.rebuild_indexes(self.config.index_interval_bytes)
            elif at == tail:
                self._unindexed = segment

    def _finish(self) -> None:
        self.start = max(self.checkpoint.start, self.segments[0].base)
        self.epochs.truncate_from_end(self.end)
        self.epochs.truncate_from_start(self.start)
        self.snapshots.keep_only(set(self.segments.bases))
        for segment in self.segments:
            if segment is not self.segments.active:
                segment.unload_indexes()
        self.segments.active.recount_unindexed_bytes()
        self.recovery_point = self.end if self.checkpoint.clean else min(self.checkpoint.recovery_point, self.end)

    def _producers_at(self, offset: int) -> ProducerStates:
        return rebuild_producer_states(self.storage, self.segments, self.snapshots, self.checkpoint.start, offset)

    # --- after a clean stop

    def _open_after_clean_stop(self) -> None:
        active = self.segments.active
        try:
            self.end = active.next_offset()
        except CorruptSegment:
            active.rebuild_indexes(self.config.index_interval_bytes)
            self.repairs.append(f"{active.offsets.path}: rebuilt, because it did not fit its log")
            self.end = active.next_offset()
        # Without any snapshot there never was a producer.
        if self.snapshots.offsets:
            self.producers = self._producers_at(self.end)

    # --- after a crash

    def _recover_after_crash(self) -> None:
        point = self.checkpoint.recovery_point
        first = self.segments.floor(point)
        # The file may be older than the batches above the recovery point, which have the epochs themselves.
        self.epochs.truncate_from_end(point)
        end = self.segments[first].base
        for at in range(first, len(self.segments)):
            segment = self.segments[at]
            file_size = segment.size
            if not file_size and segment.base < end:
                self._remove_failed_roll(segment)
                self._remove_after(at - 1)
                break
            if segment.base < point:
                end = self._recover_tail(segment, point)
            else:
                if at == first:
                    self.producers = self._producers_at(segment.base)
                end = self._rescan(segment, point)
            if segment.size < file_size:
                cut = file_size - segment.size
                self.repairs.append(
                    f"{segment.path}: cut off {cut} bytes after offset {end} that were no whole batches"
                )
                self._remove_after(at)
                break
            if self.checkpoint.gapless and at + 1 < len(self.segments) and end < (base := self.segments[at + 1].base):
                self.repairs.append(f"{segment.path}: ends at offset {end} instead of {base}")
                self._remove_after(at)
                break
        self.snapshots.remove_above(end)
        self.end = end

    def _recover_tail(self, segment: Segment, point: int) -> int:
        """Recovers what follows the recovery point inside a segment; what is below it is only skipped, by the index."""
        file_size = segment.size
        found = self._find_first_batch_at(segment, point)
        if found is None:
            self.repairs.append(f"{segment.offsets.path}: rebuilt, because it did not fit its log")
            self.producers = self._producers_at(segment.base)
            return self._rescan(segment, point)
        position, expected = found
        segment.size = position
        segment.truncate_indexes_to(point)
        segment.recount_unindexed_bytes()
        self.producers = self._producers_at(point)
        return self._read_on(segment, position, file_size, expected, point)

    def _find_first_batch_at(self, segment: Segment, point: int) -> tuple[int, int] | None:
        """(position, offset) of the first batch that ends at or above the recovery point. None if the index is wrong."""
        if segment is self._unindexed or not segment.offsets.is_sound(segment.size) or not segment.times.is_sound():
            return None
        position, expected = segment.offsets.floor(point - 1), segment.base
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
        return self._read_on(segment, 0, file_size, segment.base, protected)

    def _read_on(self, segment: Segment, position: int, file_size: int, expected: int, protected: int) -> int:
        """Reads and checks batches from `position` on. Returns the offset after the last one.

        What is wrong below offset `protected` raises CorruptSegment; what is wrong above ends the log.
        """
        interval = self.config.index_interval_bytes
        try:
            for at, data, header in segment.iter_whole_batches(position, file_size):
                position = at
                if header.magic != MAGIC:
                    raise CorruptSegment(segment.path, at, f"message format {header.magic} instead of {MAGIC}")
                if header.base_offset < expected or header.last_offset_delta < 0:
                    raise CorruptSegment(segment.path, at, f"offset {header.base_offset} instead of {expected} or more")
                if not has_valid_crc(data, header):
                    raise CorruptSegment(
                        segment.path, at, f"the CRC of the batch at offset {header.base_offset} is wrong"
                    )
                if header.leader_epoch > self.epochs.latest_epoch():
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    aborted = replay_batch(self.producers, header, data, self.now_ms)
                    if aborted is not None:
                        segment.transactions.append(aborted)
                segment.index_batch(at, header.size, header.last_offset, header.max_timestamp, interval)
                expected = header.next_offset
        except (CorruptSegment, KafkaError) as error:
            if expected < protected:
                raise CorruptSegment(
                    segment.path, position, f"{error} (offset {expected}; all below {protected} was on the device)"
                ) from error
            file = self.storage.files.get(segment.path)
            file.truncate(segment.size)
            # Or a second loss of power could bring it back, when this segment is no longer the last.
            file.sync()
        segment.seal()
        return expected

    def _remove_after(self, at: int) -> None:
        removed = list(self.segments)[at + 1 :]
        if removed:
            self.repairs.append(f"removed {len(removed)} segments after it")
            self.segments.replace(removed, [])
            for segment in reversed(removed):
                segment.remove()


def _offsets(names: list[str], suffix: str) -> list[int]:
    return [offset for name in names if name.endswith(suffix) and (offset := file_names.offset_of(name)) is not None]
