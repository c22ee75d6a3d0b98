"""The last appended bytes of a log, in memory and shared by all who read the tail.

An append copies its batches once, into an arena; the file is written from there, and every reader gets a view of the same bytes. So
twenty consumers of a busy partition cost twenty slices, no copies and no system calls. Arenas are never changed once written, so a
view stays right for as long as a slow reader holds it; small pieces are copied out so that a few bytes never hold a whole arena.

`TailBudget` bounds what all logs of a broker keep together: the arenas made longest ago go first.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import Final

FIRST_ARENA: Final = 16 << 10
LARGEST_ARENA: Final = 1 << 20
GROWTH: Final = 4
DEFAULT_BUDGET: Final = 32 << 20
COPY_BELOW: Final = 8 << 10  # bytes; a smaller piece is copied rather than viewed


class Arena:
    """Whole batches, one behind the other. `ends[i]`: offset after batch i; `stops[i]`: its end in bytes."""

    __slots__ = ("ends", "first", "size", "stops", "used", "view")

    def __init__(self, size: int, first: int) -> None:
        self.view = memoryview(bytearray(size))
        self.size = size
        self.used = 0
        self.first = first
        self.ends: array[int] = array("q")
        self.stops: array[int] = array("i")

    def read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> bytes | memoryview:
        """Whole batches from the one that holds `offset`; none that ends above `up_to`."""
        ends, stops = self.ends, self.stops
        at = bisect_right(ends, offset)
        start = stops[at - 1] if at else 0
        stop = min(bisect_right(ends, up_to), bisect_right(stops, start + max_bytes))
        if stop <= at:
            if not at_least_one or ends[at] > up_to:
                return b""
            stop = at + 1
        piece = self.view[start : stops[stop - 1]]
        return bytes(piece) if len(piece) < COPY_BELOW else piece


class TailBudget:
    """The memory that the tails of all logs share, in bytes."""

    __slots__ = ("_tails", "limit", "used")

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        self.limit = limit
        self.used = 0
        self._tails: OrderedDict[int, tuple[Arena, TailCache]] = OrderedDict()

    def add(self, arena: Arena, tail: "TailCache") -> None:
        self._tails[id(arena)] = arena, tail
        self.used += arena.size
        while self.used > self.limit and len(self._tails) > 1:
            oldest, owner = next(iter(self._tails.values()))
            owner.forget(oldest)

    def remove(self, arena: Arena) -> None:
        if self._tails.pop(id(arena), None) is not None:
            self.used -= arena.size


class TailCache:
    """One log's arenas, without a gap between them; the newest is being filled."""

    __slots__ = ("_arenas", "_budget", "_next_size")

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self._arenas: list[Arena] = []
        self._next_size = FIRST_ARENA

    def room(self, size: int, next_offset: int) -> Arena:
        """An arena with `size` bytes free at `used`. `next_offset`: the log's end, where the new bytes start."""
        if self._arenas:
            arena = self._arenas[-1]
            if arena.size - arena.used >= size:
                return arena
        arena = Arena(max(size, self._next_size), next_offset)
        self._next_size = min(self._next_size * GROWTH, LARGEST_ARENA)
        self._arenas.append(arena)
        self._budget.add(arena, self)
        return arena

    def read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> bytes | memoryview | None:
        """As `PartitionLog.read`; None when the offset is not here, or when the disk can give much more in one piece."""
        arenas = self._arenas
        for at in range(len(arenas) - 1, -1, -1):
            arena = arenas[at]
            if offset >= arena.first:
                if not arena.ends or offset >= arena.ends[-1]:
                    return None
                if at < len(arenas) - 1 and max_bytes > arena.size:
                    return None
                return arena.read(offset, max_bytes, up_to, at_least_one)
        return None

    def forget(self, arena: Arena) -> None:
        """Drops an arena and every older one, so that no gap remains."""
        at = self._arenas.index(arena)
        for old in self._arenas[: at + 1]:
            self._budget.remove(old)
        del self._arenas[: at + 1]
        if not self._arenas:
            self._next_size = FIRST_ARENA

    def clear(self) -> None:
        """Drops everything; needed when the log is truncated."""
        if self._arenas:
            self.forget(self._arenas[-1])
