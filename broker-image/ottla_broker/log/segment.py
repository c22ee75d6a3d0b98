"""One segment of a log: a `.log` file of record batches and its three indexes, all named after the first offset it may hold."""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla_broker.log import file_names
from ottla_broker.log.config import MAX_INT32
from ottla_broker.log.disk import File
from ottla_broker.log.offset_index import ENTRY as OFFSET_ENTRY
from ottla_broker.log.offset_index import OffsetIndex
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.time_index import ENTRY as TIME_ENTRY
from ottla_broker.log.time_index import TimeIndex, TimestampOffset
from ottla_broker.log.txn_index import TransactionIndex
from ottla_broker.wire.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    parse_batch_header,
)

_FRONT: Final = Struct(">qi")  # base offset, batch length
_DELTA: Final = Struct(">i")
_DELTA_AT: Final = ATTRIBUTES_OFFSET + 2
_SMALLEST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_FIRST_CHUNK: Final = 8 << 10
_SCAN_CHUNK: Final = 1 << 20


class CorruptSegment(ValueError):
    """Bytes that are no record batch, where one must be. Names the file and the position."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path}: corrupt at position {position}: {why}")
        self.path = path
        self.position = position
        self.why = why


class Found(NamedTuple):
    """A batch in a segment. `position` and `size` in bytes."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class Segment:
    """Offsets from `base` on. `size`: bytes of batches. `largest`: the newest timestamp and the last offset of its batch."""

    __slots__ = (
        "_files",
        "_largest",
        "base",
        "created_ms",
        "directory",
        "first_timestamp",
        "jitter_ms",
        "offsets",
        "path",
        "size",
        "times",
        "transactions",
        "unindexed",
    )

    def __init__(
        self, files: OpenFiles, directory: str, base: int, *, size: int, now_ms: int, jitter_ms: int = 0
    ) -> None:
        self._files = files
        self.directory = directory
        self.base = base
        self.path = file_names.segment_file(directory, base, file_names.LOG)
        self.offsets = OffsetIndex(files, file_names.segment_file(directory, base, file_names.OFFSET_INDEX), base)
        self.times = TimeIndex(files, file_names.segment_file(directory, base, file_names.TIME_INDEX), base)
        self.transactions = TransactionIndex(files, file_names.segment_file(directory, base, file_names.TXN_INDEX))
        self.size = size
        self.created_ms = now_ms
        self.jitter_ms = jitter_ms
        self.unindexed = 0  # bytes since the last index entry
        self.first_timestamp: int | None = None  # max timestamp of the first batch; None: not looked up, or none
        self._largest: TimestampOffset | None = None  # None: not looked up

    @classmethod
    def create(cls, files: OpenFiles, directory: str, base: int, *, now_ms: int, jitter_ms: int = 0) -> "Segment":
        """A new, empty segment. Leftovers under its names are emptied. OSError, and nothing of it is left."""
        segment = cls(files, directory, base, size=0, now_ms=now_ms, jitter_ms=jitter_ms)
        try:
            for path in (segment.path, segment.offsets.path, segment.times.path):
                file = files.create(path)
                if file.size():
                    file.truncate(0)
            files.disk.remove(segment.transactions.path)
        except OSError:
            segment.remove()
            raise
        segment._largest = TimestampOffset(-1, base)
        return segment

    @property
    def file(self) -> File:
        return self._files.get(self.path)

    @property
    def paths(self) -> tuple[str, ...]:
        return self.path, self.offsets.path, self.times.path, self.transactions.path

    # --- writing

    def must_roll(
        self, size: int, last_offset: int, timestamp: int, *, now_ms: int, segment_bytes: int, segment_ms: int
    ) -> bool:
        """Whether the next `size` bytes belong into a new segment. Index fullness is the log's to check."""
        if not self.size:
            return last_offset - self.base > MAX_INT32
        if self.size + size > segment_bytes or last_offset - self.base > MAX_INT32:
            return True
        first = self.first_batch_timestamp()
        waited = timestamp - first if first >= 0 and timestamp >= 0 else now_ms - self.created_ms
        return waited > segment_ms - self.jitter_ms

    def first_batch_timestamp(self) -> int:
        """Largest timestamp of the first batch, which stands for the segment's age. The segment must not be empty."""
        if self.first_timestamp is None:
            self.first_timestamp = parse_batch_header(self.file.read(HEADER_SIZE, 0)).max_timestamp
        return self.first_timestamp

    def indexes_full(self, index_bytes: int) -> bool:
        return (len(self.offsets) + 1) * OFFSET_ENTRY > index_bytes or (len(self.times) + 2) * TIME_ENTRY > index_bytes

    def added(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Notes a batch that was written at `position`; adds index entries every `interval` bytes."""
        largest = self._largest
        if largest is None:
            largest = self.largest
        if max_timestamp > largest.timestamp:
            self._largest = largest = TimestampOffset(max_timestamp, last_offset)
        if self.first_timestamp is None and position == 0:
            self.first_timestamp = max_timestamp
        if self.unindexed > interval:
            self.offsets.append(last_offset, position)
            self.times.append(largest)
            self.unindexed = 0
        self.unindexed += size
        self.size = position + size

    @property
    def largest(self) -> TimestampOffset:
        if self._largest is None:
            self._largest = self._find_largest()
        return self._largest

    def _find_largest(self) -> TimestampOffset:
        # Whenever an offset was indexed, so was the largest timestamp before it: only what follows can be larger.
        largest, entry = self.times.last(), self.offsets.last()
        for _, header in self.headers(entry[1] if entry else 0):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def seal(self) -> None:
        """The segment's end is known: the last time index entry tells its largest timestamp."""
        if self.size:
            self.times.append(self.largest)
        self.save_indexes()

    def save_indexes(self) -> None:
        self.offsets.save()
        self.times.save()
        self.transactions.save()

    def reset_indexes(self) -> None:
        """Empties the indexes, before they are built anew from the batches."""
        self.reset_offset_indexes()
        self.transactions.clear()

    def reset_offset_indexes(self) -> None:
        for index in (self.offsets, self.times):
            index.unload()
            self._files.create(index.path).truncate(0)
        self.unindexed = 0
        self.first_timestamp = None
        self._largest = TimestampOffset(-1, self.base)

    def reindex(self, interval: int) -> None:
        """Builds the offset and time indexes anew from the batches' headers. Raises CorruptSegment when it is not the indexes that are
        wrong."""
        size = self.size
        headers = list(self.headers())
        self.reset_offset_indexes()
        for position, header in headers:
            self.added(position, header.size, header.last_offset, header.max_timestamp, interval)
        assert self.size == size
        self.seal()

    def truncate_to(self, offset: int) -> int:
        """Cuts off the batch that holds `offset`, and all after it. Returns the offset where the log now ends: `offset`, or the first one
        of that batch."""
        found = self.find(offset)
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.transactions.truncate_to(offset)
        self._largest = None
        if found is not None:
            self.file.truncate(found.position)
            self.size = found.position
        if not self.size:
            self.first_timestamp = None
            self._largest = TimestampOffset(-1, self.base)
        self.note_unindexed()
        return offset if found is None else min(offset, found.base_offset)

    def note_unindexed(self) -> None:
        """Counts the bytes behind the last index entry anew."""
        last = self.offsets.last()
        self.unindexed = self.size - (last[1] if last else 0)

    # --- reading

    def find(self, offset: int) -> Found | None:
        """The first batch that ends at or after `offset`: the one that holds it, or the next one after a hole. None: no such batch."""
        for found in self.batches(self.offsets.floor(offset)):
            if found.last_offset >= offset:
                return found
        return None

    def batches(self, start: int) -> Iterator[Found]:
        """Batches from position `start` on, by the few bytes that say where they end. Raises CorruptSegment."""
        for position, data, at, size in self._walk(start):
            base, _ = _FRONT.unpack_from(data, at)
            yield Found(position, size, base, base + _DELTA.unpack_from(data, at + _DELTA_AT)[0])

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from position `start` on. Raises CorruptSegment."""
        for position, data, at, _ in self._walk(start):
            yield position, parse_batch_header(data, at)

    def _walk(self, position: int) -> Iterator[tuple[int, bytes, int, int]]:
        """(position, data, index of the header in data, size of the batch). Reads much at once where batches are small and a
        header at a time where they are large."""
        data, start, chunk = b"", position, _FIRST_CHUNK
        file, end = self.file, self.size
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(data):
                data, start, at = file.read(min(chunk, end - position), position), position, 0
                if len(data) < HEADER_SIZE:
                    raise CorruptSegment(
                        self.path, position, f"{len(data)} bytes left, a batch header takes {HEADER_SIZE}"
                    )
                size = _FRONT.unpack_from(data)[1] + LOG_OVERHEAD
                chunk = min(chunk * 2, _SCAN_CHUNK) if size < _FIRST_CHUNK else HEADER_SIZE
            length = _FRONT.unpack_from(data, at)[1]
            size = length + LOG_OVERHEAD
            if length < _SMALLEST_LENGTH or position + size > end:
                raise CorruptSegment(self.path, position, f"batch length {length}, {end - position} bytes are left")
            yield position, data, at, size
            position += size

    def whole_batches(self, position: int, end: int) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        """(position, bytes, header) of the batches from `position` to `end`, with their records. Raises CorruptSegment."""
        data, start = memoryview(b""), position
        file = self.file
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(data):
                data, start, at = memoryview(file.read(min(_SCAN_CHUNK, end - position), position)), position, 0
                if len(data) < HEADER_SIZE:
                    raise CorruptSegment(
                        self.path, position, f"{len(data)} bytes left, a batch header takes {HEADER_SIZE}"
                    )
            header = parse_batch_header(data, at)
            if header.length < _SMALLEST_LENGTH or position + header.size > end:
                raise CorruptSegment(
                    self.path, position, f"batch length {header.length}, {end - position} bytes are left"
                )
            if at + header.size > len(data):
                data, start, at = memoryview(file.read(max(_SCAN_CHUNK, header.size), position)), position, 0
            yield position, data[at : at + header.size], header
            position += header.size

    def read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> Buffer | None:
        """As `PartitionLog.read`; None when no batch of this segment ends at or after `offset`."""
        found = self.find(offset)
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
        """The end of the last batch that fits below position `limit` and ends below offset `up_to`."""
        stop = max(stop, self.offsets.boundary(limit, up_to))
        if stop >= limit:
            return stop
        data = self.file.read(limit - stop, stop)
        at, end = 0, len(data)
        while at + HEADER_SIZE <= end:
            base, length = _FRONT.unpack_from(data, at)
            if length < _SMALLEST_LENGTH:
                raise CorruptSegment(self.path, stop + at, f"batch length {length}")
            if at + length + LOG_OVERHEAD > end or base + _DELTA.unpack_from(data, at + _DELTA_AT)[0] >= up_to:
                break
            at += length + LOG_OVERHEAD
        return stop + at

    def indexed_below(self, offset: int) -> int:
        """The end of a batch, at or below `offset`, by the index; the base when the index knows none."""
        return self.offsets.last_below(offset) + 1

    def size_above(self, offset: int) -> int:
        """About how many bytes lie at and above `offset`, by the index."""
        return self.size - self.offsets.floor(offset)

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset of an empty segment. Raises CorruptSegment."""
        entry = self.offsets.last()
        if entry is not None and not 0 <= entry[1] < self.size:
            raise CorruptSegment(self.offsets.path, entry[1], f"no position in a log of {self.size} bytes")
        end = self.base
        for found in self.batches(entry[1] if entry else 0):
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
        """Gives memory and descriptors back; what they hold must have been saved."""
        self.unload_indexes()
        for path in self.paths:
            self._files.close(path)

    def unload_indexes(self) -> None:
        for index in (self.offsets, self.times, self.transactions):
            index.unload()
