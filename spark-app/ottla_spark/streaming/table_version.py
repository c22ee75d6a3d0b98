"""Versions of a reference table, and which records the next version has to read. Pure.

A version has the latest row of each key up to an offset of each partition: rows of `base` whose key
is not in `delta`, and the rows of `delta`. A delta has the latest change of each key since the
base, which is a row or a deletion. When it has grown, both are merged into a new base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

DEFAULT_DELETE_RETENTION_MS: Final = 24 * 60 * 60 * 1000
"""Kafka's default of delete.retention.ms."""
_MIN_DELTA_ROWS: Final = 10_000
_MAX_DELTA_SHARE: Final = 0.01
"""Share of the base's rows. A delta of this size is broadcast for each batch; with 100 changes a
batch, ten million rows are joined to a new base once in 1,000 batches.
"""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """base, delta: names of their folders; the delta's is empty if it has no rows. starts, ends:
    offsets by partition; rows before `starts` were deleted from the topic by retention. definition:
    digest of what the columns depend on. refreshed_ms: when all records before `ends` had been
    read.
    """

    number: int
    base: str
    delta: str
    base_rows: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    definition: str
    refreshed_ms: int

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> TableVersion:
        """Raises KeyError, TypeError or ValueError."""
        offsets = {name: {int(at): int(offset) for at, offset in stored[name].items()} for name in ("starts", "ends")}
        return cls(**{**stored, **offsets})

    @property
    def folders(self) -> frozenset[str]:
        return frozenset({self.base, self.delta} - {""})


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Start and end offset of each partition of the topic at the brokers."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Unchanged:
    pass


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """The records from these offsets to the topic's ends are to be read."""

    since: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ReadAll:
    pass


def plan_refresh(
    version: TableVersion | None, definition: str, topic: TopicOffsets, now_ms: int, delete_retention_ms: int
) -> Unchanged | ReadChanges | ReadAll:
    """Plans the read after which a table has all records of the topic.

    All of them are read if another schema decodes them, if the topic lost records at its end, or if
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


def needs_new_base(version: TableVersion, topic: TopicOffsets, delta_rows: int) -> bool:
    """True if a delta with so many rows is to be merged into a new base. A base may have rows that
    the topic's retention has deleted; a new one has not.
    """
    limit = max(_MIN_DELTA_ROWS, int(version.base_rows * _MAX_DELTA_SHARE))
    return delta_rows > limit or any(start > version.starts.get(at, 0) for at, start in topic.starts.items())
