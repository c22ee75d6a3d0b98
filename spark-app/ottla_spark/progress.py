"""How the pipeline does: Spark's progress events read, lag reckoned, and told as lines of JSON.

A line has `at`, `pipeline`, `state` (starting, running, stopping, stopped, finished, suspended or failed) and, after
a batch, `query`, `batch`, `rows` (read), `written`, `deadLetters`, `inputRowsPerSecond`, `processedRowsPerSecond`,
`batchMs`, `watermark` and `lag`: {`records`, `seconds`, `partitions`: {topic: {partition: {`records`, `seconds`}}}}.
Records: what the topic has beyond the batch when that has ended. Seconds: how long ago the first of them was written (0 when there is
none, null when it could not be read in time). `error` is the last error in words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ottla_spark.cluster import Partition
from ottla_spark.now import Now

_LARGEST_FILE: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch of a query did."""

    query: str
    number: int
    rows: int
    written: int
    dead: int
    input_rows_per_second: float
    processed_rows_per_second: float
    milliseconds: int
    watermark: str | None
    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int]


def batch(event: str | Mapping[str, Any]) -> Batch:
    """A batch from Spark's progress event (its JSON, or that parsed)."""
    progress = json.loads(event) if isinstance(event, str) else event
    starts: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    for source in progress["sources"]:
        starts = furthest_behind(starts, offsets(source.get("startOffset")))
        ends = furthest_behind(ends, offsets(source.get("endOffset")))
    observed = progress.get("observedMetrics") or {}
    return Batch(
        query=progress["name"],
        number=progress["batchId"],
        rows=progress["numInputRows"],
        written=sum(int(seen.get("rows") or 0) for seen in observed.values()),
        dead=sum(int(seen.get("dead") or 0) for seen in observed.values()),
        input_rows_per_second=_rate(progress.get("inputRowsPerSecond")),
        processed_rows_per_second=_rate(progress.get("processedRowsPerSecond")),
        milliseconds=int(progress.get("durationMs", {}).get("triggerExecution", 0)),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        starts=starts,
        ends=ends,
    )


def offsets(value: object) -> dict[Partition, int]:
    """Offsets as the connector tells them: {topic: {partition: offset}}, sometimes as text, sometimes null."""
    parsed = json.loads(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping):
        return {}
    return {(topic, int(partition)): int(offset) for topic, of in parsed.items() for partition, offset in of.items()}


def furthest_behind(one: Mapping[Partition, int], other: Mapping[Partition, int]) -> dict[Partition, int]:
    """Of two readers of one topic."""
    return {**one, **other, **{it: min(one[it], other[it]) for it in one.keys() & other.keys()}}


def _rate(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


@dataclass(slots=True)
class Positions:
    """How far all queries are: a partition's position is that of the query that is furthest behind in it. `reads`: topics of every query, also of those that
    have not told anything yet; `at`: how far each is that has ever processed anything, from the checkpoint until it tells."""

    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    at: dict[str, Mapping[Partition, int]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def begin(self, query: str, reads: frozenset[str], at: Mapping[Partition, int]) -> None:
        """`at`: up to where it had processed in a life before; empty when it had not."""
        self.reads[query], self.at[query] = reads, at

    def add(self, done: Batch) -> None:
        self.at[done.query] = done.ends
        self._told.add(done.query)

    @property
    def everyone_told(self) -> bool:
        return self.reads.keys() <= self._told

    @property
    def known(self) -> dict[Partition, int]:
        """For each partition, of those queries that have processed anything of it."""
        found: dict[Partition, int] = {}
        for ends in self.at.values():
            for partition, end in ends.items():
                found[partition] = min(end, found.get(partition, end))
        return found

    @property
    def ends(self) -> dict[Partition, int]:
        """Where to go on, for each partition; without those of which a query that reads them has processed nothing yet."""
        return {
            partition: end
            for partition, end in self.known.items()
            if all(partition in self.at[query] for query, topics in self.reads.items() if partition[0] in topics)
        }

    def behind(self, newest: Mapping[Partition, int]) -> dict[Partition, int]:
        """Records not yet processed, for each partition. `newest`: the offsets that would be written next."""
        return {partition: max(0, newest.get(partition, end) - end) for partition, end in self.known.items()}


def lag(behind: Mapping[Partition, int], written_ms: Mapping[Partition, int], now_ms: int) -> dict[str, Any]:
    """The `lag` of a line."""
    partitions: dict[str, dict[str, dict[str, Any]]] = {}
    oldest: list[float] = []
    for (topic, partition), records in sorted(behind.items()):
        seconds: float | None = 0.0
        if records:
            written = written_ms.get((topic, partition))
            seconds = None if written is None else round(max(0, now_ms - written) / 1000, 3)
        if seconds is not None:
            oldest.append(seconds)
        partitions.setdefault(topic, {})[str(partition)] = {"records": records, "seconds": seconds}
    unknown = len(oldest) < len(behind) and not any(oldest)
    return {
        "records": sum(behind.values()),
        "seconds": None if unknown else max(oldest, default=0.0),
        "partitions": partitions,
    }


class Report:
    """The file of lines, where one is wanted, and their sum in `now`.

    Another process follows the file, so each line is written whole; past 8 MiB it begins anew, the old one kept as `.1`.
    """

    def __init__(self, path: Path | None, pipeline: str, now: Now | None = None) -> None:
        self._path = path
        self._pipeline = pipeline
        self._now = now or Now()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def state(self, state: str, error: str | None = None, **more: object) -> None:
        """The pipeline's state has changed, or is worth repeating."""
        self._write({"state": state, **more, **({"error": error} if error is not None else {})})

    def batch(self, done: Batch, lag_now: Mapping[str, Any]) -> None:
        """A batch is done."""
        self._write(
            {
                "state": "running",
                "query": done.query,
                "batch": done.number,
                "rows": done.rows,
                "written": done.written,
                "deadLetters": done.dead,
                "inputRowsPerSecond": round(done.input_rows_per_second, 3),
                "processedRowsPerSecond": round(done.processed_rows_per_second, 3),
                "batchMs": done.milliseconds,
                "watermark": done.watermark,
                "lag": lag_now,
            }
        )

    def _write(self, told: Mapping[str, object]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "pipeline": self._pipeline, **told}
        self._now.take(line)
        if self._path is None:
            return
        if self._path.exists() and self._path.stat().st_size > _LARGEST_FILE:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The lines of a report; a last one that is not whole yet is left out."""
    return [json.loads(line) for line in lines if line.endswith("\n")]
