"""`.timeindex`: from when on to look. Entries of 12 bytes: largest timestamp so far i64 (ms), relative offset i32.

An entry says: up to its offset nothing in the segment is newer than its timestamp; the offset is the last of the batch that holds
that timestamp. Timestamps rise strictly. The last entry is added when the segment is rolled or closed.
"""

from array import array
from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from ottla_broker.log.offset_index import rises, valid_entries
from ottla_broker.log.open_files import OpenFiles

_ENTRY: Final = Struct(">qi")
ENTRY: Final = _ENTRY.size


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds and an offset; (-1, base offset) when there is none."""

    timestamp: int
    offset: int
    leader_epoch: int = -1


class TimeIndex:
    __slots__ = ("_files", "_relative", "_saved", "_timestamps", "base", "path")

    def __init__(self, files: OpenFiles, path: str, base: int) -> None:
        self._files = files
        self.path = path
        self.base = base
        self._timestamps: array[int] | None = None
        self._relative: array[int] = array("i")
        self._saved = 0

    def _load(self) -> "array[int]":
        if self._timestamps is None:
            file = self._files.create(self.path)
            entries = list(_ENTRY.iter_unpack(valid_entries(file.read(file.size(), 0), ENTRY)))
            self._timestamps = array("q", [entry[0] for entry in entries])
            self._relative = array("i", [entry[1] for entry in entries])
            self._saved = len(entries)
        return self._timestamps

    def __len__(self) -> int:
        return len(self._load())

    def unload(self) -> None:
        self._timestamps, self._relative = None, array("i")

    def entries(self) -> list[TimestampOffset]:
        return [TimestampOffset(t, self.base + r) for t, r in zip(self._load(), self._relative, strict=True)]

    def last(self) -> TimestampOffset:
        """(-1, base) when the index is empty."""
        timestamps = self._load()
        if not timestamps:
            return TimestampOffset(-1, self.base)
        return TimestampOffset(timestamps[-1], self.base + self._relative[-1])

    def append(self, largest: TimestampOffset) -> None:
        """Adds an entry if it is newer than the last one; otherwise nothing is to be said."""
        timestamps = self._load()
        if largest.timestamp > (timestamps[-1] if timestamps else -1):
            relative = largest.offset - self.base
            if self._relative and relative < self._relative[-1]:
                return
            timestamps.append(largest.timestamp)
            self._relative.append(relative)

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is older than `timestamp`; the base offset when nothing is known."""
        at = bisect_left(self._load(), timestamp)
        return self.base + self._relative[at - 1] if at else self.base

    def truncate_to(self, offset: int) -> None:
        timestamps = self._load()
        at = bisect_left(self._relative, offset - self.base)
        if at < len(timestamps):
            del timestamps[at:], self._relative[at:]
        if at < self._saved:
            self._files.create(self.path).truncate(at * ENTRY)
            self._saved = at

    def is_sound(self) -> bool:
        timestamps = self._load().tolist()
        relative = self._relative.tolist()
        return rises(timestamps) and relative == sorted(relative) and (not relative or relative[0] >= 0)

    def save(self) -> None:
        if self._timestamps is None:
            return
        file = self._files.create(self.path)
        if file.size() != self._saved * ENTRY:
            file.truncate(self._saved * ENTRY)
        if new := len(self._timestamps) - self._saved:
            pairs = zip(self._timestamps[self._saved :], self._relative[self._saved :], strict=True)
            file.append([b"".join(_ENTRY.pack(timestamp, relative) for timestamp, relative in pairs)])
            self._saved += new
