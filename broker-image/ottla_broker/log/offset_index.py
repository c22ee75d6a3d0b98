"""`.index`: where in a segment an offset is. Entries of 8 bytes: offset relative to the segment's base i32, position i32, both rising.

An entry names the *last* offset of a batch and the position where that batch starts; there is one for every
`index.interval.bytes` of log. Kept in memory while in use; new entries reach the file at `save`.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from ottla_broker.log.open_files import OpenFiles

ENTRY: Final = 8


class OffsetIndex:
    __slots__ = ("_files", "_positions", "_relative", "_saved", "base", "path")

    def __init__(self, files: OpenFiles, path: str, base: int) -> None:
        self._files = files
        self.path = path
        self.base = base
        self._relative: array[int] | None = None  # None: not loaded
        self._positions: array[int] = array("i")
        self._saved = 0  # entries that the file holds

    def _load(self) -> "array[int]":
        if self._relative is None:
            file = self._files.create(self.path)
            entries = array("i")
            entries.frombytes(valid_entries(file.read(file.size(), 0), ENTRY))
            entries.byteswap()
            self._relative, self._positions = entries[0::2], entries[1::2]
            self._saved = len(self._relative)
        return self._relative

    @property
    def loaded(self) -> bool:
        return self._relative is not None

    def __len__(self) -> int:
        return len(self._load())

    def unload(self) -> None:
        """Gives the memory back. Everything must have been saved."""
        self._relative, self._positions = None, array("i")

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

    def floor(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`; the largest known."""
        at = bisect_right(self._load(), offset - self.base)
        return self._positions[at - 1] if at else 0

    def last_below(self, offset: int) -> int:
        """The largest known last offset of a batch that is below `offset`; base - 1 when there is none."""
        at = bisect_left(self._load(), offset - self.base)
        return self.base + (self._load()[at - 1] if at else -1)

    def boundary(self, position: int, before: int) -> int:
        """The largest known position of a batch ≤ `position` in front of which every batch ends before offset `before`."""
        relative = self._load()
        at = min(bisect_right(self._positions, position), bisect_left(relative, before - self.base))
        return self._positions[at - 1] if at else 0

    def truncate_to(self, offset: int) -> None:
        """Forgets entries at or above `offset`."""
        relative = self._load()
        at = bisect_left(relative, offset - self.base)
        if at < len(relative):
            del relative[at:], self._positions[at:]
        if at < self._saved:
            self._files.create(self.path).truncate(at * ENTRY)
            self._saved = at

    def is_sound(self, log_size: int) -> bool:
        """Whether offsets and positions rise, and positions lie inside the log."""
        relative, positions = self._load().tolist(), self._positions.tolist()
        return (
            rises(relative)
            and rises(positions)
            and (not relative or (relative[0] >= 0 and positions[0] >= 0 and positions[-1] < log_size))
        )

    def save(self) -> None:
        """Brings the file up to date: new entries appended, what is no entry (preallocated zeros) cut off."""
        if self._relative is None:
            return
        file = self._files.create(self.path)
        if file.size() != self._saved * ENTRY:
            file.truncate(self._saved * ENTRY)
        new = len(self._relative) - self._saved
        if new:
            entries = array("i", bytes(new * ENTRY))
            entries[0::2], entries[1::2] = self._relative[self._saved :], self._positions[self._saved :]
            entries.byteswap()
            file.append([entries.tobytes()])
            self._saved += new


def valid_entries(data: bytes, size: int) -> bytes:
    """Index data without the zeros that Kafka preallocates behind the entries, cut to whole entries of `size` bytes.

    No index has an all-zero entry, so cutting zeros and rounding up to a whole entry finds the end.
    """
    length = -(-len(data.rstrip(b"\0")) // size) * size
    return data[: min(length, len(data) // size * size)]


def rises(values: list[int]) -> bool:
    """Whether each value is larger than the one before it."""
    return sorted(set(values)) == values
