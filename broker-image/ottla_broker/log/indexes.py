"""The three indexes of a segment: `.index` by offset, `.timeindex` by time, `.txnindex` of aborted
transactions.

They are Kafka's files. An index is loaded at its first use and kept in memory until `unload`; new
entries reach the file at `save`.
"""

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

from ottla_broker.log.open_files import OpenFiles

OFFSET_ENTRY_BYTES: Final = 8
_TIME_ENTRY: Final = Struct(">qi")
TIME_ENTRY_BYTES: Final = _TIME_ENTRY.size
_TXN_ENTRY: Final = Struct(">hqqqq")
_TXN_VERSION: Final = 0


class CorruptSegment(ValueError):
    """Bytes in one of a segment's files that are not what they must be. Names the file and the
    position."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path}: corrupt at position {position}: {why}")
        self.path = path
        self.position = position
        self.why = why


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds and an offset; (−1, base offset) when there is none."""

    timestamp: int
    offset: int
    leader_epoch: int = -1


class AbortedTransaction(NamedTuple):
    """One aborted transaction of one producer. `last_offset` is that of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class IndexFile:
    """The file of an index, in entries of `entry_bytes`. `saved`: number of the index's entries
    that it holds."""

    __slots__ = ("_files", "entry_bytes", "path", "saved")

    def __init__(self, files: OpenFiles, path: str, entry_bytes: int) -> None:
        self._files = files
        self.path = path
        self.entry_bytes = entry_bytes
        self.saved = 0

    def read(self) -> bytes:
        """All entries. The zeros that Kafka preallocates behind them are left out.

        No entry is all zeros, so cutting zeros off and rounding up to a whole entry finds the end.
        """
        file = self._files.create(self.path)
        data, size = file.read(file.size(), 0), self.entry_bytes
        self.saved = min(-(-len(data.rstrip(b"\0")) // size), len(data) // size)
        return data[: self.saved * size]

    def exists(self) -> bool:
        return self._files.disk.exists(self.path)

    def truncate_to(self, count: int) -> None:
        """Leaves the first `count` entries."""
        if count < self.saved:
            self._files.create(self.path).truncate(count * self.entry_bytes)
            self.saved = count

    def clear(self) -> None:
        self._files.create(self.path).truncate(0)
        self.saved = 0

    def append(self, entries: bytes) -> None:
        """Writes after the saved entries. Preallocated zeros there are truncated first."""
        file = self._files.create(self.path)
        if file.size() != self.saved * self.entry_bytes:
            file.truncate(self.saved * self.entry_bytes)
        if entries:
            file.append([entries])
            self.saved += len(entries) // self.entry_bytes


class OffsetIndex:
    """Maps offsets to positions in a segment.

    An entry names the *last* offset of a batch, relative to the segment's base (i32), and the
    position where that batch starts (i32). Both rise. There is one entry for every
    `index.interval.bytes` of log.
    """

    __slots__ = ("_file", "_positions", "_relative", "base")

    def __init__(self, files: OpenFiles, path: str, base: int) -> None:
        self._file = IndexFile(files, path, OFFSET_ENTRY_BYTES)
        self.base = base
        self._relative: array[int] | None = None
        self._positions: array[int] = array("i")

    @property
    def path(self) -> str:
        return self._file.path

    def _load(self) -> "array[int]":
        if self._relative is None:
            entries = array("i", self._file.read())
            entries.byteswap()
            self._relative, self._positions = entries[0::2], entries[1::2]
        return self._relative

    @property
    def is_loaded(self) -> bool:
        return self._relative is not None

    def __len__(self) -> int:
        return len(self._load())

    def unload(self) -> None:
        """Gives the memory back. Everything must have been saved."""
        self._relative, self._positions = None, array("i")

    def clear(self) -> None:
        """Empties the index and its file."""
        self.unload()
        self._file.clear()

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position), oldest first."""
        return [(self.base + r, p) for r, p in zip(self._load(), self._positions, strict=True)]

    def last(self) -> tuple[int, int] | None:
        relative = self._load()
        return (self.base + relative[-1], self._positions[-1]) if relative else None

    def append(self, offset: int, position: int) -> None:
        """Offsets must rise; `position` is where the batch that ends with `offset` starts."""
        self._load().append(offset - self.base)
        self._positions.append(position)

    def lookup_position(self, offset: int) -> int:
        """The largest known position at or before the batch that holds `offset`."""
        at = bisect_right(self._load(), offset - self.base)
        return self._positions[at - 1] if at else 0

    def last_below(self, offset: int) -> int:
        """The largest known last offset of a batch that is below `offset`; base - 1 when there is
        none."""
        relative = self._load()
        at = bisect_left(relative, offset - self.base)
        return self.base + (relative[at - 1] if at else -1)

    def batch_boundary(self, position: int, before: int) -> int:
        """The largest indexed position of a batch that is at most `position`. All batches before it
        end below offset `before`. 0 when there is none."""
        relative = self._load()
        at = min(bisect_right(self._positions, position), bisect_left(relative, before - self.base))
        return self._positions[at - 1] if at else 0

    def truncate_to(self, offset: int) -> None:
        """Drops entries at and above `offset`."""
        relative = self._load()
        at = bisect_left(relative, offset - self.base)
        del relative[at:], self._positions[at:]
        self._file.truncate_to(at)

    def is_sound(self, log_size: int) -> bool:
        """True if offsets and positions rise and positions lie inside the log."""
        relative, positions = self._load().tolist(), self._positions.tolist()
        return (
            _rises(relative)
            and _rises(positions)
            and (not relative or (relative[0] >= 0 and positions[0] >= 0 and positions[-1] < log_size))
        )

    def save(self) -> None:
        if self._relative is not None:
            saved = self._file.saved
            entries = array("i", bytes((len(self._relative) - saved) * OFFSET_ENTRY_BYTES))
            entries[0::2], entries[1::2] = self._relative[saved:], self._positions[saved:]
            entries.byteswap()
            self._file.append(entries.tobytes())


class TimeIndex:
    """Maps timestamps to offsets in a segment.

    An entry (largest timestamp so far i64 in ms, relative offset i32) says that up to its offset
    nothing in the segment is newer than its timestamp. The offset is the last of the batch that
    holds that timestamp. Timestamps rise. The last entry is added when the segment is rolled or
    closed.
    """

    __slots__ = ("_file", "_relative", "_timestamps", "base")

    def __init__(self, files: OpenFiles, path: str, base: int) -> None:
        self._file = IndexFile(files, path, TIME_ENTRY_BYTES)
        self.base = base
        self._timestamps: array[int] | None = None
        self._relative: array[int] = array("i")

    @property
    def path(self) -> str:
        return self._file.path

    def _load(self) -> "array[int]":
        if self._timestamps is None:
            entries = list(_TIME_ENTRY.iter_unpack(self._file.read()))
            self._timestamps = array("q", [entry[0] for entry in entries])
            self._relative = array("i", [entry[1] for entry in entries])
        return self._timestamps

    def __len__(self) -> int:
        return len(self._load())

    def unload(self) -> None:
        self._timestamps, self._relative = None, array("i")

    def clear(self) -> None:
        self.unload()
        self._file.clear()

    def entries(self) -> list[TimestampOffset]:
        return [TimestampOffset(t, self.base + r) for t, r in zip(self._load(), self._relative, strict=True)]

    def last(self) -> TimestampOffset:
        """(−1, base) when the index is empty."""
        timestamps = self._load()
        if not timestamps:
            return TimestampOffset(-1, self.base)
        return TimestampOffset(timestamps[-1], self.base + self._relative[-1])

    def append(self, largest: TimestampOffset) -> None:
        """Adds an entry if its timestamp is above the last one's and its offset is not below."""
        timestamps = self._load()
        if largest.timestamp > (timestamps[-1] if timestamps else -1):
            relative = largest.offset - self.base
            if self._relative and relative < self._relative[-1]:
                return
            timestamps.append(largest.timestamp)
            self._relative.append(relative)

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is older than `timestamp`; the base offset when none
        is known."""
        at = bisect_left(self._load(), timestamp)
        return self.base + self._relative[at - 1] if at else self.base

    def truncate_to(self, offset: int) -> None:
        """Drops entries at and above `offset`."""
        timestamps = self._load()
        at = bisect_left(self._relative, offset - self.base)
        del timestamps[at:], self._relative[at:]
        self._file.truncate_to(at)

    def is_sound(self) -> bool:
        """True if timestamps rise and offsets do not fall."""
        timestamps, relative = self._load().tolist(), self._relative.tolist()
        return _rises(timestamps) and relative == sorted(relative) and (not relative or relative[0] >= 0)

    def save(self) -> None:
        if self._timestamps is not None:
            saved = self._file.saved
            pairs = zip(self._timestamps[saved:], self._relative[saved:], strict=True)
            self._file.append(b"".join(_TIME_ENTRY.pack(timestamp, relative) for timestamp, relative in pairs))


class TransactionIndex:
    """The aborted transactions whose end marker lies in a segment; read_committed readers leave
    their records out.

    Entries: version i16 (0) · producer id i64 · first offset i64 · last offset (of the marker) i64
    · last stable offset i64 when the marker was written. A segment without aborted transactions has
    no such file.
    """

    __slots__ = ("_entries", "_file")

    def __init__(self, files: OpenFiles, path: str) -> None:
        self._file = IndexFile(files, path, _TXN_ENTRY.size)
        self._entries: list[AbortedTransaction] | None = None

    @property
    def path(self) -> str:
        return self._file.path

    def entries(self) -> list[AbortedTransaction]:
        """Oldest marker first, up to the first entry that a loss of power left as zeros. Raises
        CorruptSegment for an entry of another version."""
        if self._entries is None:
            self._entries = []
            data = self._file.read() if self._file.exists() else b""
            for at, (version, *fields) in enumerate(_TXN_ENTRY.iter_unpack(data)):
                if version != _TXN_VERSION:
                    position = at * self._file.entry_bytes
                    raise CorruptSegment(self.path, position, f"entry of version {version}, not {_TXN_VERSION}")
                entry = AbortedTransaction(*fields)
                # Zeros that a loss of power left: no entry behind them was on the device.
                if entry.first_offset >= entry.last_offset:
                    break
                self._entries.append(entry)
            self._file.saved = len(self._entries)
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        self.entries().append(entry)

    def truncate_to(self, offset: int) -> None:
        """Drops transactions whose marker is at or above `offset`."""
        self._entries = [entry for entry in self.entries() if entry.last_offset < offset]
        self._file.truncate_to(len(self._entries))

    def clear(self) -> None:
        """Drops everything, also what cannot be read."""
        self._entries, self._file.saved = [], 0
        if self._file.exists():
            self._file.clear()

    def unload(self) -> None:
        self._entries = None

    def save(self) -> None:
        if self._entries is not None and len(self._entries) > self._file.saved:
            new = self._entries[self._file.saved :]
            self._file.append(b"".join(_TXN_ENTRY.pack(_TXN_VERSION, *entry) for entry in new))


def _rises(values: list[int]) -> bool:
    """True if each value is larger than the one before it."""
    return sorted(set(values)) == values
