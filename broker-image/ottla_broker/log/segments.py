"""A log's segments in order of their base offsets; the last one is active, the only one that is
written."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ottla_broker.log.segment import Segment


class Segments:
    """The segments of a log, ordered by base offset; at least one. `active`: the last one."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base for segment in segments]
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def bases(self) -> Sequence[int]:
        return self._bases

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def index_of_offset(self, offset: int) -> int:
        """Index of the segment that may hold `offset`: the last one whose base is not above it; 0
        if all are."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segments that may hold `offset` or an offset above it."""
        return self._segments[self.index_of_offset(offset) :]

    def add(self, segment: Segment) -> None:
        """Adds a segment, which becomes the active one."""
        self._segments.append(segment)
        self._bases.append(segment.base)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Puts `new` in the place of `old`. At least one segment must remain."""
        replaced = set(map(id, old))
        kept = [segment for segment in self._segments if id(segment) not in replaced]
        self._segments = sorted(kept + list(new), key=lambda segment: segment.base)
        self._bases = [segment.base for segment in self._segments]
        self.active = self._segments[-1]
