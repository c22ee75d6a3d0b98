"""One segment of a log: a `.log` file of record batches and its three indexes.

All are named for the segment's base offset, the first one that it may hold.
"""

from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from ottla_broker.log import file_names
from ottla_broker.log.config import MAX_INT32, LogConfig
from ottla_broker.log.disk import File
from ottla_broker.log.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    CorruptSegment,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
)
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.wire.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Buffer, parse_batch_header

# The fields of a batch header that say where the batch ends: base offset, batch length, last offset
# delta.
_EXTENT: Final = Struct(">qi11xi")
_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_FIRST_CHUNK_BYTES: Final = 8 << 10
_SCAN_CHUNK_BYTES: Final = 1 << 20


class BatchLocation(NamedTuple):
    """A batch in a segment. `position` and `size` in bytes."""

    position: int
    size: int
    base_offset: int
    last_offset: int


@dataclass(slots=True, eq=False, repr=False)
class Segment:
    """Offsets from `base` on. `size`: bytes of batches. `suffix`: ending of the files' names while
    they are not in use.

    `unindexed_bytes`: bytes since the last index entry.
    """

    _files: OpenFiles
    directory: str
    base: int
    size: int = 0
    created_ms: int = 0
    jitter_ms: int = 0
    suffix: InitVar[str] = ""
    path: str = field(init=False)
    offsets: OffsetIndex = field(init=False)
    times: TimeIndex = field(init=False)
    transactions: TransactionIndex = field(init=False)
    unindexed_bytes: int = 0
    # Both None until they are read from the files.
    _first_timestamp: int | None = None
    _max_timestamp_and_offset: TimestampOffset | None = None

    def __post_init__(self, suffix: str) -> None:
        def path(kind: str) -> str:
            return file_names.segment_file(self.directory, self.base, kind) + suffix

        self.path = path(file_names.LOG)
        self.offsets = OffsetIndex(self._files, path(file_names.OFFSET_INDEX), self.base)
        self.times = TimeIndex(self._files, path(file_names.TIME_INDEX), self.base)
        self.transactions = TransactionIndex(self._files, path(file_names.TXN_INDEX))

    @classmethod
    def create(cls, files: OpenFiles, directory: str, base: int, *, now_ms: int, jitter_ms: int = 0) -> "Segment":
        """Creates an empty segment. Files of these names are emptied. On OSError none of its files
        remains.
        """
        segment = cls(files, directory, base, created_ms=now_ms, jitter_ms=jitter_ms)
        try:
            for path in (segment.path, segment.offsets.path, segment.times.path):
                file = files.create(path)
                if file.size():
                    file.truncate(0)
            files.disk.remove(segment.transactions.path)
        except OSError:
            segment.remove()
            raise
        segment._max_timestamp_and_offset = TimestampOffset(-1, base)
        return segment

    @property
    def file(self) -> File:
        return self._files.get(self.path)

    @property
    def paths(self) -> tuple[str, ...]:
        return self.path, self.offsets.path, self.times.path, self.transactions.path

    # --- writing

    def must_roll(self, size: int, last_offset: int, timestamp: int, now_ms: int, config: LogConfig) -> bool:
        """True if the next `size` bytes need a new segment."""
        if self.unindexed_bytes > config.index_interval_bytes and self._indexes_full(config.segment_index_bytes):
            return True
        if not self.size:
            return last_offset - self.base > MAX_INT32
        if self.size + size > config.segment_bytes or last_offset - self.base > MAX_INT32:
            return True
        first = self._first_timestamp if self._first_timestamp is not None else self.first_batch_timestamp()
        age_ms = timestamp - first if first >= 0 and timestamp >= 0 else now_ms - self.created_ms
        return age_ms > config.roll_ms - self.jitter_ms

    def first_batch_timestamp(self) -> int:
        """Largest timestamp of the first batch, which stands for the segment's age. The segment
        must not be empty."""
        if self._first_timestamp is None:
            self._first_timestamp = parse_batch_header(self.file.read(HEADER_SIZE, 0)).max_timestamp
        return self._first_timestamp

    def _indexes_full(self, index_bytes: int) -> bool:
        # The time index gets one more entry when the segment is closed.
        return (len(self.offsets) + 1) * OFFSET_ENTRY_BYTES > index_bytes or (
            len(self.times) + 2
        ) * TIME_ENTRY_BYTES > index_bytes

    def index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Takes a batch that was written at `position` into account; adds index entries every
        `interval` bytes."""
        largest = self._max_timestamp_and_offset
        if largest is None:
            largest = self.max_timestamp_and_offset
        if max_timestamp > largest.timestamp:
            self._max_timestamp_and_offset = largest = TimestampOffset(max_timestamp, last_offset)
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = max_timestamp
        if self.unindexed_bytes > interval:
            self.offsets.append(last_offset, position)
            self.times.append(largest)
            self.unindexed_bytes = 0
        self.unindexed_bytes += size
        self.size = position + size

    @property
    def max_timestamp_and_offset(self) -> TimestampOffset:
        """The newest timestamp, and the last offset of its batch. Raises OSError,
        CorruptSegment.
        """
        if self._max_timestamp_and_offset is None:
            # Whenever an offset was indexed, so was the largest timestamp before it: only what
            # follows can be larger.
            largest, entry = self.times.last(), self.offsets.last()
            for _, header in self.iter_headers(entry[1] if entry else 0):
                if header.max_timestamp > largest.timestamp:
                    largest = TimestampOffset(header.max_timestamp, header.last_offset)
            self._max_timestamp_and_offset = largest
        return self._max_timestamp_and_offset

    def seal(self) -> None:
        """Completes and saves the indexes: the last entry of the time index holds the segment's
        largest timestamp."""
        if self.size:
            self.times.append(self.max_timestamp_and_offset)
        self.save_indexes()

    def save_indexes(self) -> None:
        for index in (self.offsets, self.times, self.transactions):
            index.save()

    def clear_indexes(self) -> None:
        """Empties the indexes, before they are rebuilt from the batches."""
        self._clear_offset_indexes()
        self.transactions.clear()

    def _clear_offset_indexes(self) -> None:
        self.offsets.clear()
        self.times.clear()
        self.unindexed_bytes = 0
        self._first_timestamp = None
        self._max_timestamp_and_offset = TimestampOffset(-1, self.base)

    def rebuild_indexes(self, interval: int) -> None:
        """Rebuilds the offset and time indexes from the batch headers. Raises CorruptSegment if
        these are corrupt; the indexes are unchanged then."""
        size = self.size
        headers = list(self.iter_headers())
        self._clear_offset_indexes()
        for position, header in headers:
            self.index_batch(position, header.size, header.last_offset, header.max_timestamp, interval)
        assert self.size == size
        self.seal()

    def truncate_to(self, offset: int) -> int:
        """Cuts off the batch that holds `offset`, and all after it.

        Returns the offset where the log ends now: `offset`, or the first one of that batch.
        """
        found = self.find_batch(offset)
        self.truncate_indexes_to(offset)
        self._max_timestamp_and_offset = None
        if found is not None:
            self.file.truncate(found.position)
            self.size = found.position
        if not self.size:
            self._first_timestamp = None
            self._max_timestamp_and_offset = TimestampOffset(-1, self.base)
        self.recount_unindexed_bytes()
        return offset if found is None else min(offset, found.base_offset)

    def truncate_indexes_to(self, offset: int) -> None:
        for index in (self.offsets, self.times, self.transactions):
            index.truncate_to(offset)

    def recount_unindexed_bytes(self) -> None:
        last = self.offsets.last()
        self.unindexed_bytes = self.size - (last[1] if last else 0)

    # --- reading

    def find_batch(self, offset: int) -> BatchLocation | None:
        """The first batch that ends at or after `offset`: the one that holds it, or the next one
        after a hole. None if all batches end before `offset`."""
        for position, size, base, last, _, _ in self._walk(self.offsets.lookup_position(offset)):
            if last >= offset:
                return BatchLocation(position, size, base, last)
        return None

    def iter_batches(self, start: int) -> Iterator[BatchLocation]:
        """Batches from position `start` on, of which only offsets and lengths are parsed. Raises
        CorruptSegment.
        """
        for position, size, base, last, _, _ in self._walk(start):
            yield BatchLocation(position, size, base, last)

    def iter_headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from position `start` on. Raises CorruptSegment."""
        for position, _, _, _, data, at in self._walk(start):
            yield position, parse_batch_header(data, at)

    def _walk(self, position: int) -> Iterator[tuple[int, int, int, int, bytes, int]]:
        """(position, size, base offset, last offset, data, index of the header in data) of each
        batch.

        Reads much at once where batches are small, and a header at a time where they are large.
        """
        data, start, chunk = b"", position, _FIRST_CHUNK_BYTES
        file, end = self.file, self.size
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(data):
                data, start, at = file.read(min(chunk, end - position), position), position, 0
                if len(data) < HEADER_SIZE:
                    raise self._cut_off_error(position, len(data))
                size = _EXTENT.unpack_from(data)[1] + LOG_OVERHEAD
                chunk = min(chunk * 2, _SCAN_CHUNK_BYTES) if size < _FIRST_CHUNK_BYTES else HEADER_SIZE
            base, length, delta = _EXTENT.unpack_from(data, at)
            size = length + LOG_OVERHEAD
            if length < _MIN_LENGTH or position + size > end:
                raise CorruptSegment(self.path, position, f"batch length {length}, {end - position} bytes are left")
            yield position, size, base, base + delta, data, at
            position += size

    def _cut_off_error(self, position: int, left: int) -> CorruptSegment:
        return CorruptSegment(self.path, position, f"{left} bytes left, a batch header takes {HEADER_SIZE}")

    def iter_whole_batches(self, position: int, end: int) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        """(position, whole batch, header) of the batches from `position` to `end`. Raises
        CorruptSegment."""
        data, start = memoryview(b""), position
        file = self.file
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(data):
                data, start, at = memoryview(file.read(min(_SCAN_CHUNK_BYTES, end - position), position)), position, 0
                if len(data) < HEADER_SIZE:
                    raise self._cut_off_error(position, len(data))
            header = parse_batch_header(data, at)
            length, size = header.length, header.size
            if length < _MIN_LENGTH or position + size > end:
                raise CorruptSegment(self.path, position, f"batch length {length}, {end - position} bytes are left")
            if at + size > len(data):
                data, start, at = memoryview(file.read(max(_SCAN_CHUNK_BYTES, size), position)), position, 0
            yield position, data[at : at + size], header
            position += size

    def read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> Buffer | None:
        """Reads from this segment like `PartitionLog.read`. None when no batch of it ends at or
        after `offset`.
        """
        found = self.find_batch(offset)
        if found is None:
            return None
        start = found.position
        if found.last_offset >= up_to or (found.size > max_bytes and not at_least_one):
            return b""
        limit = start + max(max_bytes, found.size)
        stop = start + found.size
        if stop < limit:
            stop = self._stop_at(stop, min(limit, self.size), up_to)
        return self.file.read(stop - start, start)

    def _stop_at(self, stop: int, limit: int, up_to: int) -> int:
        """The end of the last batch that fits below position `limit` and ends below offset
        `up_to`."""
        stop = max(stop, self.offsets.batch_boundary(limit, up_to))
        if stop >= limit:
            return stop
        data = self.file.read(limit - stop, stop)
        at, end = 0, len(data)
        while at + HEADER_SIZE <= end:
            base, length, delta = _EXTENT.unpack_from(data, at)
            if length < _MIN_LENGTH:
                raise CorruptSegment(self.path, stop + at, f"batch length {length}")
            if at + length + LOG_OVERHEAD > end or base + delta >= up_to:
                break
            at += length + LOG_OVERHEAD
        return stop + at

    def indexed_end_below(self, offset: int) -> int:
        """The end of a batch, at or below `offset`, that the index names; the base offset when it
        names none."""
        return self.offsets.last_below(offset) + 1

    def size_from(self, offset: int) -> int:
        """Approximate number of bytes from the batch that holds `offset` to the end, by the
        index.
        """
        return self.size - self.offsets.lookup_position(offset)

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset of an empty segment. Raises
        CorruptSegment."""
        entry = self.offsets.last()
        if entry is not None and not 0 <= entry[1] < self.size:
            raise CorruptSegment(self.offsets.path, entry[1], f"no position in a log of {self.size} bytes")
        end = self.base
        for found in self.iter_batches(entry[1] if entry else 0):
            if entry is not None and found.position == entry[1] and found.last_offset != entry[0]:
                raise CorruptSegment(self.offsets.path, entry[1], f"{entry[0]} is not the last offset of a batch")
            end = found.last_offset + 1
        return end

    def remove(self) -> None:
        """Deletes the files."""
        self.unload()
        for path in self.paths:
            self._files.disk.remove(path)

    def unload(self) -> None:
        """Releases memory and file descriptors. Their content must have been saved."""
        self.unload_indexes()
        for path in self.paths:
            self._files.close(path)

    def unload_indexes(self) -> None:
        for index in (self.offsets, self.times, self.transactions):
            index.unload()
