"""Versions of a reference table, and which records the next version has to read. Pure.

A version has the latest row of each key up to an offset of each partition: rows of `base` whose key
is not in `delta`, and the rows of `delta`. A delta has the latest change of each key since the
base, which is a row or a deletion. The base of a large table is in parts, by the hash of the key.
When the delta has grown, its changes of some parts are merged into these, so that no batch writes
the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

DEFAULT_DELETE_RETENTION_MS: Final = 24 * 60 * 60 * 1000
"""Kafka's default of delete.retention.ms."""
_MIN_DELTA_ROWS: Final = 10_000
_MIN_LOOKED_UP_TABLE: Final = 2_000_000
_MAX_LOOKED_UP_ROWS: Final = 10_000
_MAX_LOOKED_UP_SHARE: Final = 0.001
_MAX_DELTA_SHARE: Final = 0.0025
"""Largest delta, as a share of the base's rows. Each batch writes the delta; with 100 changes a
batch and ten million rows, one part of 32 is written once in 16 batches.
"""
_ROWS_PER_PART: Final = 500_000
_MAX_PARTS: Final = 32
"""Spark lists more folders than that with a job."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """number: counts versions. base: names of the folders of its parts. delta: name of its folder.
    A name is empty if there are no rows. base_rows: approximate number of rows of the base. starts,
    ends: offsets by partition; rows before `starts` were deleted from the topic by retention.
    definition: digest of what the columns depend on. refreshed_ms: time since 1970 at which all
    records before `ends` had been read. next_part: the part of the base that is merged next.
    """

    number: int
    base: tuple[str, ...]
    delta: str
    base_rows: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    definition: str
    refreshed_ms: int
    next_part: int = 0

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> TableVersion:
        """Raises KeyError, TypeError or ValueError."""
        offsets = {name: {int(at): int(offset) for at, offset in stored[name].items()} for name in ("starts", "ends")}
        base = stored["base"]  # was one name in versions without parts
        return cls(**{**stored, **offsets, "base": (base,) if isinstance(base, str) else tuple(base)})

    @property
    def folders(self) -> frozenset[str]:
        return frozenset({*self.base, self.delta} - {""})


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Start and end offset of each partition of the topic at the brokers."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The version has all records of the topic."""


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """The records from these offsets to the topic's ends are to be read."""

    since: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ReadAll:
    """All records of the topic are to be read."""


def plan_refresh(
    version: TableVersion | None, definition: str, topic: TopicOffsets, now_ms: int, delete_retention_ms: int
) -> Unchanged | ReadChanges | ReadAll:
    """Plans the read after which a table has all records of the topic. `version`: the last one.
    `definition`: digest of what the columns depend on now.

    All records are read if another schema decodes them, if the topic lost records at its end, or if
    a deletion may be missing: compaction removes a record without value once every reader has had
    `delete.retention.ms` to read it.
    """
    if version is None or version.definition != definition:
        return ReadAll()
    if any(topic.ends.get(partition, 0) < end for partition, end in version.ends.items()):
        return ReadAll()
    if topic.ends == version.ends and topic.starts == version.starts:
        return Unchanged()
    if now_ms - version.refreshed_ms > delete_retention_ms:
        return ReadAll()
    since = {at: min(max(start, version.ends.get(at, 0)), topic.ends[at]) for at, start in topic.starts.items()}
    return ReadChanges(since)


def parts_to_merge(version: TableVersion, topic: TopicOffsets, delta_rows: int) -> Sequence[int]:
    """Parts of the base that are to be merged with a delta of `delta_rows` rows: none while it is
    small; all parts, if the base has outgrown their number, or has rows that the topic's retention
    has deleted.
    """
    parts = range(len(version.base))
    if any(start > version.starts.get(at, 0) for at, start in topic.starts.items()):
        return parts
    limit = max(_MIN_DELTA_ROWS, int(version.base_rows * _MAX_DELTA_SHARE))
    if delta_rows <= limit:
        return ()
    if count_parts(version.base_rows + delta_rows) > 2 * len(parts):
        return parts
    merged_count = math.ceil(len(parts) * (1 - limit / delta_rows))
    return tuple((version.next_part + at) % len(parts) for at in range(merged_count))


def count_parts(rows: int) -> int:
    """Number of the parts of a base with `rows` rows, a power of two."""
    return min(_MAX_PARTS, 1 << (max(1, math.ceil(rows / _ROWS_PER_PART)) - 1).bit_length())


def with_merged_parts(
    version: TableVersion, merged: Sequence[int], folders: Sequence[str], rows: int, starts: Mapping[int, int]
) -> TableVersion:
    """The version with new folders of the `merged` parts, which have `rows` rows. If all parts are
    merged, their number may change.
    """
    if len(merged) == len(version.base):
        return replace(version, base=tuple(folders), base_rows=rows, starts=starts, next_part=0)
    base = list(version.base)
    for part, folder in zip(merged, folders, strict=True):
        base[part] = folder
    others = version.base_rows - round(version.base_rows * len(merged) / len(base))
    return replace(version, base=tuple(base), base_rows=others + rows, next_part=(merged[-1] + 1) % len(base))


def max_looked_up_rows(base_rows: int) -> int:
    """The largest number of a batch's rows whose keys are looked up one by one. 0 for tables that
    are read faster as a whole. Each key costs a page, and pages have 1,000 rows. `base_rows`: of
    the table.
    """
    if base_rows < _MIN_LOOKED_UP_TABLE:
        return 0
    return min(_MAX_LOOKED_UP_ROWS, int(base_rows * _MAX_LOOKED_UP_SHARE))
