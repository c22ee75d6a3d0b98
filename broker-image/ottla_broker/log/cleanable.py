"""Which log is compacted next, how far, and which segments become one: pure choices, as Kafka's cleaner makes them.

A log is «clean» below the offset that cleaner-offset-checkpoint holds for it, «dirty» from there on. Invariant: what
`to_clean` returns ends at the base of a segment and never lies past the last stable offset, the active segment, or a
segment in which something is younger than min.compaction.lag.ms.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from ottla_broker.log.config import MAX_INT32, MAX_INT64, LogConfig

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the choice needs of a segment. Sizes in bytes, timestamps in ms (−1: none). `largest_timestamp` is looked at
    only with min.compaction.lag.ms, `first_timestamp` only with max.compaction.lag.ms."""

    base: int
    size: int
    largest_timestamp: int = -1
    first_timestamp: int = -1
    offset_index_size: int = 0
    time_index_size: int = 0


@dataclass(frozen=True, slots=True)
class ToClean:
    """Clean from `first_dirty` up to `end` (exclusive). `overdue`: max.compaction.lag.ms has passed for something in
    it."""

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """The share of dirty bytes, 0 to 1, that min.cleanable.dirty.ratio is compared with."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def to_clean(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    start: int,
    end: int,
    stable: int,
    checkpoint: int | None,
    now_ms: int,
) -> ToClean | None:
    """What to clean of one log, or None when nothing has to be. `segments`: all of them, the last is the active one;
    `start`, `end`, `stable`: the log's first, next and last stable offset; `checkpoint`: where the last cleaning ended,
    if there was one."""
    if checkpoint is None or not start <= checkpoint <= end:  # never cleaned, or the log was cut at either side since
        checkpoint = start
    uncleanable = first_uncleanable(segments, config, checkpoint, stable=stable, now_ms=now_ms)
    dirty = clean = 0
    overdue = False
    newest_allowed = now_ms - max(config.max_compaction_lag_ms, 0)
    for segment, following in pairwise(segments):
        if segment.base >= uncleanable:
            break
        if segment.base < checkpoint:
            clean += segment.size
        if following.base > checkpoint:
            dirty += segment.size
            overdue |= 0 < segment.first_timestamp < newest_allowed
    if not dirty:
        return None
    found = ToClean(checkpoint, uncleanable, clean, dirty, overdue)
    return found if overdue or found.ratio > config.min_cleanable_dirty_ratio else None


def first_uncleanable(
    segments: Sequence[SegmentFacts], config: LogConfig, first_dirty: int, *, stable: int, now_ms: int
) -> int:
    """The base of the first segment that must be left alone."""
    lag = max(config.min_compaction_lag_ms, 0)
    for segment, following in pairwise(segments):
        if following.base > stable:
            return segment.base
        if lag and following.base > first_dirty and segment.largest_timestamp > now_ms - lag:
            return segment.base
    return segments[-1].base


def must_know_timestamps(config: LogConfig) -> tuple[bool, bool]:
    """Whether the choice looks at (largest, first) timestamps of segments: reading them may cost disk access."""
    return config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < MAX_INT64


def filthiest(candidates: Iterable[tuple[Key, ToClean]]) -> tuple[Key, ToClean] | None:
    """The one to clean first: what is overdue, then the dirtiest."""
    return max(candidates, key=lambda candidate: (candidate[1].overdue, candidate[1].ratio), default=None)


def grouped(segments: Sequence[SegmentFacts], config: LogConfig, end: int) -> list[list[SegmentFacts]]:
    """Neighbours that together fit into one segment, so that segments do not shrink to nothing over many cleanings.

    `segments` are those to be cleaned, oldest first, `end` is where they end. Together they keep to segment.bytes,
    segment.index.bytes and to offsets that fit the indexes (relative to the first base, in 31 bits).
    """
    groups: list[list[SegmentFacts]] = []
    sizes = (0, 0, 0)
    ends = [segment.base for segment in segments[1:]] + [end]
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    for segment, segment_end in zip(segments, ends, strict=True):
        own = (segment.size, segment.offset_index_size, segment.time_index_size)
        together = tuple(a + b for a, b in zip(sizes, own, strict=True))
        fits = all(size <= limit for size, limit in zip(together, limits, strict=True))
        if groups and fits and segment_end - 1 - groups[-1][0].base <= MAX_INT32:
            groups[-1].append(segment)
            sizes = (together[0], together[1], together[2])
        else:
            groups.append([segment])
            sizes = own
    return groups
