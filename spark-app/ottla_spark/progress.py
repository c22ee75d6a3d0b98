"""Progress of a pipeline: Spark's progress events, the lag, and the log of both as lines of JSON.

A line has `at`, `pipeline`, `state` (starting, running, stopping, stopped, finished, suspended or
failed) and, after a batch, `query`, `batch`, `rows` (read), `written`, `deadLetters`, `rejected`
({view: {rule: count}}, rows that did not decode or did not satisfy an expectation; a row counts for
the first rule that it does not satisfy), `inputRowsPerSecond`, `processedRowsPerSecond`, `batchMs`,
`watermark` and `lag`: {`records`, `seconds`, `partitions`: {topic: {partition: {`records`,
`seconds`}}}}. The lag in records counts what the topic has beyond the batch when the batch has
ended. The lag in seconds is the age of the first of them: 0 if there is none, null if no age could
be read in time. `caughtUp` says whether the pipeline has caught up (see catch_up.py), and
`catchUpSecondsLeft` estimates the time until then. `error` is the last error, `sparkUi` the URL of
Spark's web UI, where it is on, and `comparisons` what comparing sinks with `compareWith` has found,
as in `status`. While jars are downloaded, `doing` says so. `group` is the pipeline's consumer
group, in the line with which it begins to run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ottla_operator.resources.replacement import Comparison
from ottla_spark.catch_up import CatchUpDisplay, CatchUpTracker
from ottla_spark.progress_snapshot import ProgressSnapshot
from ottla_spark.run_report import RunReport

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, int]

RejectedRowCounts = Mapping[str, Mapping[str, int]]

UNDECODED: Final = "undecoded"
"""The rule that records of a source decode."""
_REJECTED_PREFIX: Final = "rejected"
TRACES: Final = "traces"
"""Name of the observed metrics of records that are traced: their number, and some of them."""
TRACED_COUNT: Final = "traced"
_MAX_FILE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TracedRecord:
    """A record whose header `traceparent` is sampled. Its topic, partition and offset are None if
    the steps have dropped these columns.
    """

    traceparent: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Result of one batch of a query. `start_offsets`, `end_offsets`: range of the batch in each
    partition. `started_ms`: since 1970. `traced`: some of the `traced_count` records that are
    traced, where tracing is on.
    """

    query: str
    number: int
    rows: int
    written: int
    dead_letters: int
    input_rows_per_second: float
    processed_rows_per_second: float
    duration_ms: int
    watermark: str | None
    start_offsets: Offsets
    end_offsets: Offsets
    rejected: RejectedRowCounts = field(default_factory=dict)
    started_ms: int = 0
    traced: Sequence[TracedRecord] = ()
    traced_count: int = 0


def parse_progress_event(event: str | Mapping[str, Any]) -> BatchProgress:
    """Parses a StreamingQueryProgress of Spark: its JSON, or the parsed object."""
    progress = json.loads(event) if isinstance(event, str) else event
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        starts = minimum_offsets(starts, parse_offsets(source.get("startOffset")))
        ends = minimum_offsets(ends, parse_offsets(source.get("endOffset")))
    observed = progress.get("observedMetrics") or {}
    return BatchProgress(
        query=progress["name"],
        number=progress["batchId"],
        rows=progress["numInputRows"],
        written=sum(int(metrics.get("rows") or 0) for metrics in observed.values()),
        dead_letters=sum(int(metrics.get("dead") or 0) for metrics in observed.values()),
        input_rows_per_second=_rate(progress.get("inputRowsPerSecond")),
        processed_rows_per_second=_rate(progress.get("processedRowsPerSecond")),
        duration_ms=int(progress.get("durationMs", {}).get("triggerExecution", 0)),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        start_offsets=starts,
        end_offsets=ends,
        rejected=_parse_rejected(observed.values()),
        started_ms=_parse_time_ms(progress.get("timestamp")),
        traced=_parse_traced(observed.get(TRACES, {})),
        traced_count=int(observed.get(TRACES, {}).get(TRACED_COUNT) or 0),
    )


def rejected_metric(view: str, rule: str) -> str:
    """The name of the observed metric that counts the rows of a view that a rule rejects."""
    return f"{_REJECTED_PREFIX}:{view}:{rule}"


def _parse_rejected(observed: Iterable[Mapping[str, Any]]) -> RejectedRowCounts:
    rejected: dict[str, dict[str, int]] = {}
    for metrics in observed:
        for name, count in metrics.items():
            prefix, _, view_and_rule = name.partition(":")
            if prefix == _REJECTED_PREFIX:
                view, _, rule = view_and_rule.partition(":")
                rejected.setdefault(view, {})[rule] = int(count or 0)
    return rejected


def _parse_traced(observed: Mapping[str, Any]) -> list[TracedRecord]:
    found = [one for name, one in observed.items() if name != TRACED_COUNT and one is not None]
    return [
        TracedRecord(one["traceparent"], one.get("topic"), one.get("partition"), one.get("offset")) for one in found
    ]


def _parse_time_ms(text: str | None) -> int:
    return 0 if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)


def parse_offsets(value: object) -> dict[TopicPartition, int]:
    """Offsets as the connector reports them: {topic: {partition: offset}} as an object or as text,
    or null.
    """
    parsed = json.loads(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping):
        return {}
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in parsed.items()
        for partition, offset in partitions.items()
    }


def format_offsets(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Inverse of `parse_offsets`."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def minimum_offsets(one: Offsets, other: Offsets) -> dict[TopicPartition, int]:
    """The smaller offset of each partition that is in either."""
    return {**one, **other, **{it: min(one[it], other[it]) for it in one.keys() & other.keys()}}


def _rate(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


@dataclass(slots=True)
class QueryOffsets:
    """End offsets of all queries of a pipeline.

    topics: topics that each query reads, also of queries without a batch so far. ends: end offsets
    of each query's last batch; before its first batch in this run, those of its checkpoint.
    """

    topics: dict[str, frozenset[str]] = field(default_factory=dict)
    ends: dict[str, Offsets] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)

    def add_query(self, query: str, topics: frozenset[str], ends: Offsets) -> None:
        """`ends`: end offsets in the checkpoint; empty if it has no batch."""
        self.topics[query], self.ends[query] = topics, ends

    def add_batch(self, batch: BatchProgress) -> None:
        self.ends[batch.query] = batch.end_offsets
        self._reported.add(batch.query)

    @property
    def all_queries_reported(self) -> bool:
        """True if every query has completed a batch in this run."""
        return self.topics.keys() <= self._reported

    @property
    def all_queries_have_offsets(self) -> bool:
        """True if every query has completed a batch, in this run or before."""
        return all(self.ends.values())

    @property
    def processed(self) -> dict[TopicPartition, int]:
        """Smallest end offset of each partition among the queries that have processed records of
        it.
        """
        smallest: dict[TopicPartition, int] = {}
        for ends in self.ends.values():
            smallest = minimum_offsets(smallest, ends)
        return smallest

    @property
    def committable(self) -> dict[TopicPartition, int]:
        """`processed`, except partitions of which a query that reads them has processed nothing."""
        return {
            partition: end
            for partition, end in self.processed.items()
            if all(partition in self.ends[query] for query, topics in self.topics.items() if partition[0] in topics)
        }

    def lag_records(self, log_end_offsets: Offsets) -> dict[TopicPartition, int]:
        """Number of records after `processed` in each partition."""
        return {
            partition: max(0, log_end_offsets.get(partition, end) - end) for partition, end in self.processed.items()
        }


def format_lag(
    records: Mapping[TopicPartition, int], written_ms: Mapping[TopicPartition, int], now_ms: int
) -> dict[str, Any]:
    """The `lag` of a line. `records`: lag of each partition. `written_ms`: timestamp of the first
    unprocessed record, where it is known.
    """
    partitions: dict[str, dict[str, dict[str, Any]]] = {}
    ages: list[float] = []
    for (topic, partition), count in sorted(records.items()):
        seconds: float | None = 0.0
        if count:
            written = written_ms.get((topic, partition))
            seconds = None if written is None else round(max(0, now_ms - written) / 1000, 3)
        if seconds is not None:
            ages.append(seconds)
        partitions.setdefault(topic, {})[str(partition)] = {"records": count, "seconds": seconds}
    is_unknown = len(ages) < len(records) and not any(ages)
    return {
        "records": sum(records.values()),
        "seconds": None if is_unknown else max(ages, default=0.0),
        "partitions": partitions,
    }


class ProgressLog:
    """Appends progress to a file of JSON lines, if there is one, and aggregates it in a snapshot.
    `display` shows it to a person, `report` draws it.

    Another process tails the file, so each line is written at once. If the file is above 8 MiB,
    `.1` is added to its name, and a new one begins.
    """

    def __init__(
        self,
        path: Path | None,
        pipeline: str,
        snapshot: ProgressSnapshot | None = None,
        display: CatchUpDisplay | None = None,
        report: RunReport | None = None,
    ) -> None:
        self._path = path
        self._display = display
        self._report = report
        self._pipeline = pipeline
        self._snapshot = snapshot or ProgressSnapshot()
        self._catch_up = CatchUpTracker()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def write_state(self, state: str, error: str | None = None, **fields: object) -> None:
        self._write({"state": state, **fields, **({"error": error} if error is not None else {})})

    @property
    def has_caught_up(self) -> bool:
        """True if the pipeline has caught up in this run (see catch_up.py)."""
        return self._catch_up.state is not None and self._catch_up.state.has_caught_up

    def write_comparisons(self, comparisons: Iterable[Comparison]) -> None:
        self._write({"state": "running", "comparisons": [it.to_json() for it in comparisons]})

    def write_batch(self, batch: BatchProgress, lag: Mapping[str, Any]) -> None:
        self._write(
            {
                "state": "running",
                "query": batch.query,
                "batch": batch.number,
                "rows": batch.rows,
                "written": batch.written,
                "deadLetters": batch.dead_letters,
                "rejected": batch.rejected,
                "inputRowsPerSecond": round(batch.input_rows_per_second, 3),
                "processedRowsPerSecond": round(batch.processed_rows_per_second, 3),
                "batchMs": batch.duration_ms,
                "watermark": batch.watermark,
                "lag": lag,
            }
        )

    def _write(self, fields: Mapping[str, object]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "pipeline": self._pipeline, **fields}
        self._catch_up.update(line)
        if "batch" in line and (state := self._catch_up.state) is not None:
            seconds_left = None if state.seconds_left is None else round(state.seconds_left, 1)
            line |= {"caughtUp": state.has_caught_up}
            line |= {} if state.has_caught_up else {"catchUpSecondsLeft": seconds_left}
        self._snapshot.update(line)
        if self._display is not None:
            self._display.update(line)
        if self._report is not None:
            self._report.update(line)
        if self._path is None:
            return
        if self._path.exists() and self._path.stat().st_size > _MAX_FILE_BYTES:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
