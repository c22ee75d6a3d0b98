"""Decides which log is compacted next, how far, and which segments are merged, as Kafka's cleaner
does. Pure.

A log is *clean* below the offset that cleaner-offset-checkpoint has for it, *dirty* from there on.
Invariant: the range that `choose_range` returns ends at the base of a segment. It never reaches
past the last stable offset, into the active segment, or into a segment that has a record younger
than min.compaction.lag.ms.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from ottla_broker.log.config import MAX_INT32, LogConfig

Key = TypeVar("Key")


class SegmentSummary(msgspec.Struct, frozen=True):
    """The values of a segment that decisions depend on. Sizes in bytes, timestamps in ms (−1:
    none).

    `largest_timestamp` is read only with min.compaction.lag.ms, `first_timestamp` only with
    max.compaction.lag.ms.
    """

    base: int
    size: int
    largest_timestamp: int = -1
    first_timestamp: int = -1
    offset_index_size: int = 0
    time_index_size: int = 0


class DirtyRange(msgspec.Struct, frozen=True):
    """The range of a log to clean: from `first_dirty` up to `end` (exclusive).

    `is_overdue`: a record in it is older than max.compaction.lag.ms.
    """

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes, 0 to 1, that min.cleanable.dirty.ratio is compared with."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def choose_range(
    segments: Sequence[SegmentSummary],
    config: LogConfig,
    *,
    start: int,
    end: int,
    stable: int,
    checkpoint: int | None,
    now_ms: int,
) -> DirtyRange | None:
    """Returns the range of one log to clean, or None when it needs no cleaning.

    `segments`: all segments, of which the last is active. `start`, `end`, `stable`: log start
    offset, log end offset and last stable offset. `checkpoint`: the end of the last cleaning, if
    there was one.
    """
    if checkpoint is None or not start <= checkpoint <= end:
        # Never cleaned, or the log was truncated at either end since.
        checkpoint = start
    uncleanable = first_uncleanable(segments, config, checkpoint, stable=stable, now_ms=now_ms)
    dirty_bytes = clean_bytes = 0
    overdue = False
    newest_allowed = now_ms - max(config.max_compaction_lag_ms, 0)
    for segment, following in pairwise(segments):
        if segment.base >= uncleanable:
            break
        if segment.base < checkpoint:
            clean_bytes += segment.size
        if following.base > checkpoint:
            dirty_bytes += segment.size
            overdue |= 0 < segment.first_timestamp < newest_allowed
    if not dirty_bytes:
        return None
    dirty_range = DirtyRange(checkpoint, uncleanable, clean_bytes, dirty_bytes, overdue)
    return dirty_range if overdue or dirty_range.dirty_ratio > config.min_cleanable_dirty_ratio else None


def first_uncleanable(
    segments: Sequence[SegmentSummary], config: LogConfig, first_dirty: int, *, stable: int, now_ms: int
) -> int:
    """The base of the first segment that must not be cleaned."""
    lag = max(config.min_compaction_lag_ms, 0)
    for segment, following in pairwise(segments):
        if following.base > stable:
            return segment.base
        if lag and following.base > first_dirty and segment.largest_timestamp > now_ms - lag:
            return segment.base
    return segments[-1].base


def choose_filthiest(candidates: Iterable[tuple[Key, DirtyRange]]) -> tuple[Key, DirtyRange] | None:
    """Returns the log to clean first: overdue logs first, then the one with the highest dirty
    ratio. None without candidates.
    """
    return max(candidates, key=lambda one: (one[1].is_overdue, one[1].dirty_ratio), default=None)


def group_segments(segments: Sequence[SegmentSummary], config: LogConfig, end: int) -> list[list[SegmentSummary]]:
    """Groups neighbouring segments that together fit into one, so that segments do not become ever
    smaller over many cleanings.

    `segments`: those to be cleaned, oldest first; `end`: the offset at which the last of them ends.
    A group respects segment.bytes, segment.index.bytes and offsets that fit the indexes (relative
    to the first base, in 31 bits).
    """
    groups: list[list[SegmentSummary]] = []
    total = (0, 0, 0)
    ends = [segment.base for segment in segments[1:]] + [end]
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    for segment, segment_end in zip(segments, ends, strict=True):
        own = (segment.size, segment.offset_index_size, segment.time_index_size)
        total = (total[0] + own[0], total[1] + own[1], total[2] + own[2])
        fits = all(size <= limit for size, limit in zip(total, limits, strict=True))
        if groups and fits and segment_end - 1 - groups[-1][0].base <= MAX_INT32:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            total = own
    return groups
