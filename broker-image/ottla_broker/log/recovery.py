"""Opening a partition's folder: after a clean stop, after a crash, or new.

After a clean stop only the last few KiB are read. After a crash the batches above the recovery point are read and their CRCs
checked; indexes, epochs and producers follow from them. The first bytes that are no batch end the log: a torn tail is cut off. Below the
recovery point everything was on the device, so what is wrong there is not cut off but takes the partition offline, by name and offset.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import encode_topic_id, read_topic_id
from ottla_broker.log.config import LogConfig
from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.log.leftovers import tidy
from ottla_broker.log.opened import Opened
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_rebuild import newest_snapshot, rebuild_producer_states, replay_batch
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.segment import CorruptSegment, Segment
from ottla_broker.log.segments import Segments
from ottla_broker.log.snapshots import Snapshots
from ottla_broker.log.storage import Storage, is_full
from ottla_broker.wire.batch import has_valid_crc
from ottla_broker.wire.errors import KafkaError

_MAGIC: Final = 2


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """What the directory's checkpoints say of a partition. `clean`: the last stop was clean. `gapless`: segments follow each other without a gap, as ours
    do (`log.rolling`, `Compaction`), so that one is a loss; Apache Kafka's compaction leaves gaps."""

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
        write_plainly(storage, f"{directory}/{file_names.PARTITION_METADATA}", encode_topic_id(topic_id))
    segment = Segment.create(storage.files, directory, start, now_ms=storage.runtime.now_ms())
    epochs = LeaderEpochs(f"{directory}/{file_names.LEADER_EPOCHS}")
    opened = Opened(
        Segments([segment]), start, start, start, epochs, ProducerStates(), Snapshots(disk, directory), topic_id
    )
    return PartitionLog(topic, partition, directory, config, storage, opened)


def write_plainly(storage: Storage, path: str, data: bytes) -> None:
    """Without waiting for the device; the directory's next checkpoint does that."""
    file = storage.disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append((data,))
    finally:
        file.close()


def open_log(
    storage: Storage, directory: str, topic: str, partition: int, config: LogConfig, known: LogCheckpoint
) -> PartitionLog:
    """An existing partition's folder. A partition that cannot be served has `failed` set; OSError only from a full disk."""
    recovery = Recovery(storage, directory, config, known)
    return PartitionLog(topic, partition, directory, config, storage, recovery.opened())


class Recovery:
    """The opening of one folder, step by step."""

    def __init__(self, storage: Storage, directory: str, config: LogConfig, known: LogCheckpoint) -> None:
        self.storage = storage
        self.directory = directory
        self.config = config
        self.known = known
        self.now_ms = storage.runtime.now_ms()
        self.flaws: list[str] = []
        self.unindexed: Segment | None = None  # the one that the recovery point lies in, without an index

    def opened(self) -> Opened:
        topic_id = None
        try:
            topic_id = self._topic_id()
            return self._opened(topic_id)
        except (CorruptSegment, ValueError) as error:
            reason = str(error)
        except OSError as error:
            if is_full(error):
                raise  # nothing is wrong with the partition: the start is tried again when there is room
            reason = f"{error.filename or self.directory}: {error.strerror or error}"
        segment = Segment(self.storage.files, self.directory, self.known.start, size=0, now_ms=self.now_ms)
        epochs = LeaderEpochs(f"{self.directory}/{file_names.LEADER_EPOCHS}")
        snapshots = Snapshots(self.storage.disk, self.directory)
        start, point = self.known.start, self.known.recovery_point
        end = max(start, point)
        return Opened(
            Segments([segment]), start, end, point, epochs, ProducerStates(), snapshots, topic_id, failed=reason
        )

    def _topic_id(self) -> UUID | None:
        try:
            return read_topic_id(self.storage.disk, f"{self.directory}/{file_names.PARTITION_METADATA}")
        except ValueError as error:
            if self.known.clean or self.known.recovery_point > 0:
                raise
            self.flaws.append(f"{error}; removed: nothing in this partition had reached the device")
            self.storage.disk.remove(f"{self.directory}/{file_names.PARTITION_METADATA}")
            return None

    def _opened(self, topic_id: UUID | None) -> Opened:
        disk = self.storage.disk
        found = tidy(self.storage, self.directory)
        self.epochs = LeaderEpochs.load(disk, f"{self.directory}/{file_names.LEADER_EPOCHS}")
        self.snapshots = Snapshots(disk, self.directory, _offsets(found, file_names.SNAPSHOT))
        bases = sorted(_offsets(found, file_names.LOG))
        if not bases:
            self._start_with(self.known.start)
            return self._result(topic_id, self.known.start, ProducerStates())
        self.segments = Segments(self._without_leftovers([self._segment(base) for base in bases]))
        self._rebuild_missing_indexes(set(found))
        if self.known.clean:
            end = self._end_of_clean()
            producers = self._producers_of_clean(end)
        else:
            end, producers = self._recovered()
        if end < self.known.start:
            self.flaws.append(f"the log ended at {end}, below its start {self.known.start}: emptied")
            for segment in self.segments:
                segment.remove()
            self._start_with(self.known.start)
            end, producers = self.known.start, ProducerStates()
        return self._result(topic_id, end, producers)

    def _without_leftovers(self, segments: list[Segment]) -> list[Segment]:
        """A roll for which the disk had no room may have left an empty segment behind, whose offsets the one before it took afterwards. Behind
        the last one only what was on the device tells; the rest is `_recovered`'s to find out."""
        kept = segments[:1]
        for segment in segments[1:]:
            last = segment is segments[-1]
            if segment.size or (last and not self._reaches_into(kept[-1], segment.base)):
                kept.append(segment)
            else:
                self.flaws.append(f"{segment.path}: an empty segment that never began was removed")
                segment.remove()
        return kept

    def _reaches_into(self, segment: Segment, offset: int) -> bool:
        if not self.known.clean:
            return self.known.recovery_point > offset
        try:
            return segment.next_offset() > offset
        except CorruptSegment:
            return False

    def _segment(self, base: int) -> Segment:
        size = self.storage.disk.file_size(file_names.segment_file(self.directory, base, file_names.LOG))
        return Segment(self.storage.files, self.directory, base, size=size, now_ms=self.now_ms)

    def _start_with(self, base: int) -> None:
        self.segments = Segments([Segment.create(self.storage.files, self.directory, base, now_ms=self.now_ms)])

    def _result(self, topic_id: UUID | None, end: int, producers: ProducerStates) -> Opened:
        start = max(self.known.start, self.segments[0].base)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        self.snapshots.keep_only(set(self.segments.bases))
        for segment in self.segments:
            if segment is not self.segments.active:
                segment.unload_indexes()
        self.segments.active.note_unindexed()
        point = end if self.known.clean else min(self.known.recovery_point, end)
        return Opened(
            self.segments, start, end, point, self.epochs, producers, self.snapshots, topic_id, flaws=self.flaws
        )

    # --- after a clean stop

    def _end_of_clean(self) -> int:
        active = self.segments.active
        try:
            return active.next_offset()
        except CorruptSegment:
            active.reindex(self.config.index_interval_bytes)
            self.flaws.append(f"{active.offsets.path}: was wrong, built anew")
            return active.next_offset()

    def _producers_of_clean(self, end: int) -> ProducerStates:
        if not self.snapshots.offsets:
            return ProducerStates()  # nobody ever kept any: there is nothing to rebuild
        return rebuild_producer_states(self.storage, self.segments, self.snapshots, self.known.start, end)

    def _rebuild_missing_indexes(self, found: set[str]) -> None:
        """What lies above the recovery point after a crash is indexed anew in any case; that waits for `_recovered`."""
        tail = len(self.segments) if self.known.clean else self.segments.floor(self.known.recovery_point)
        for at, segment in enumerate(self.segments):
            present = all(path.rpartition("/")[2] in found for path in (segment.offsets.path, segment.times.path))
            if present or segment.size <= self.config.index_interval_bytes:
                continue
            if at < tail:
                self.flaws.append(f"{segment.path}: an index was missing, built anew")
                segment.reindex(self.config.index_interval_bytes)
            elif at == tail:
                self.unindexed = segment

    # --- after a crash

    def _recovered(self) -> tuple[int, ProducerStates]:
        point = self.known.recovery_point
        first = self.segments.floor(point)
        self.epochs.truncate_from_end(point)  # the file may be older than what follows; the batches will say
        if self.segments[first].base > point:  # everything is above the recovery point
            producers, _ = newest_snapshot(self.snapshots, self.segments[first].base, self.now_ms)
        else:
            producers = ProducerStates()
        end = self.segments[first].base
        for at in range(first, len(self.segments)):
            segment = self.segments[at]
            file_size = segment.size
            if not file_size and segment.base < end:
                self.flaws.append(f"{segment.path}: an empty segment that never began was removed")
                self._remove_after(at - 1)
                break
            if segment.base < point:
                end, producers = self._tail_of(segment, point)
            else:
                if at == first:
                    producers = rebuild_producer_states(
                        self.storage, self.segments, self.snapshots, self.known.start, segment.base
                    )
                end, producers = self._rescan(segment, producers, point)
            if segment.size < file_size:
                self.flaws.append(
                    f"{segment.path}: {file_size - segment.size} bytes behind offset {end} were no whole batches and were cut off"
                )
                self._remove_after(at)
                break
            if self.known.gapless and at + 1 < len(self.segments) and end < (base := self.segments[at + 1].base):
                self.flaws.append(f"{segment.path}: ends at offset {end}, {base} was expected")
                self._remove_after(at)
                break
        self.snapshots.remove_above(end)
        return end, producers

    def _tail_of(self, segment: Segment, point: int) -> tuple[int, ProducerStates]:
        """Recovers what follows the recovery point inside a segment; what is below it is only skipped, by the index."""
        file_size = segment.size
        found = self._position_of(segment, point)
        if found is None:
            self.flaws.append(f"{segment.offsets.path}: does not fit its log, built anew")
            producers = rebuild_producer_states(
                self.storage, self.segments, self.snapshots, self.known.start, segment.base
            )
            return self._rescan(segment, producers, point)
        position, expected = found
        segment.size = position
        segment.offsets.truncate_to(point)
        segment.times.truncate_to(point)
        segment.transactions.truncate_to(point)
        segment.note_unindexed()
        producers = rebuild_producer_states(self.storage, self.segments, self.snapshots, self.known.start, point)
        return self._read_on(segment, position, file_size, expected, point, producers)

    def _position_of(self, segment: Segment, point: int) -> tuple[int, int] | None:
        """(position, offset) from which on batches are to be read: the first batch that ends at or above the recovery point. None when
        the index leads nowhere."""
        if segment is self.unindexed or not segment.offsets.is_sound(segment.size) or not segment.times.is_sound():
            return None
        position, expected = segment.offsets.floor(point - 1), segment.base
        try:
            for found in segment.batches(position):
                if found.base_offset < expected or found.base_offset > found.last_offset:
                    return None
                if found.last_offset >= point:
                    break
                position, expected = found.position + found.size, found.last_offset + 1
        except CorruptSegment:
            return (position, expected) if expected == point else None
        return position, expected

    def _rescan(self, segment: Segment, producers: ProducerStates, protected: int) -> tuple[int, ProducerStates]:
        """Reads a whole segment and builds its indexes anew."""
        file_size = segment.size
        segment.size = 0
        segment.reset_indexes()
        return self._read_on(segment, 0, file_size, segment.base, protected, producers)

    def _read_on(
        self, segment: Segment, position: int, file_size: int, expected: int, protected: int, producers: ProducerStates
    ) -> tuple[int, ProducerStates]:
        """Reads and checks batches from `position` on. What is wrong below offset `protected` raises, what is wrong above ends the log."""
        interval = self.config.index_interval_bytes
        try:
            for at, data, header in segment.whole_batches(position, file_size):
                position = at
                if header.magic != _MAGIC:
                    raise CorruptSegment(segment.path, at, f"message format {header.magic}; only {_MAGIC} is kept")
                if header.base_offset < expected or header.last_offset_delta < 0:
                    raise CorruptSegment(
                        segment.path, at, f"offset {header.base_offset}, {expected} or more was expected"
                    )
                if not has_valid_crc(data, header):
                    raise CorruptSegment(
                        segment.path, at, f"the CRC of the batch at offset {header.base_offset} is wrong"
                    )
                if header.leader_epoch > self.epochs.latest_epoch():
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0 and (aborted := replay_batch(producers, header, data, self.now_ms)):
                    segment.transactions.append(aborted)
                segment.added(at, header.size, header.last_offset, header.max_timestamp, interval)
                expected = header.next_offset
        except (CorruptSegment, KafkaError) as error:
            if expected < protected:
                raise CorruptSegment(
                    segment.path, position, f"{error} (offset {expected}; all below {protected} had been on the device)"
                ) from error
            file = self.storage.files.get(segment.path)
            file.truncate(segment.size)
            file.sync()  # a second loss of power must not bring it back, when this segment is no longer the last
        segment.seal()
        return expected, producers

    def _remove_after(self, at: int) -> None:
        gone = [self.segments[later] for later in range(at + 1, len(self.segments))]
        if gone:
            self.flaws.append(f"{len(gone)} segments behind it were removed")
            self.segments.replace(gone, [])
            for segment in reversed(gone):
                segment.remove()


def _offsets(found: list[str], suffix: str) -> list[int]:
    return [offset for name in found if name.endswith(suffix) and (offset := file_names.offset_of(name)) is not None]
