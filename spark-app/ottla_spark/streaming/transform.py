"""Views of a pipeline: sources are decoded and deduplicated, then steps in SQL or Python run, and
their expectations are applied.

Only DataFrames are handled here. They are streams from brokers or, in `cases.py`, rows from files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.pipeline import Dedupe
from ottla_operator.resources.sources import Watermark
from ottla_operator.resources.transforms import Expectation, Transform
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import PipelineError, mark_message
from ottla_spark.progress import UNDECODED, rejected_metric
from ottla_spark.spark_conf import spark_interval
from ottla_spark.streaming import dead_letters, decode
from ottla_spark.streaming.steps import run_step

STATEFUL_OPERATORS: Final = frozenset(
    {
        "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit", "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPandas",
    }
)  # fmt: skip


class RejectedRows(Protocol):
    """The treatment of rows that do not decode or do not satisfy an expectation: they are counted,
    or collected as dead letters. Each method returns the rows with which the pipeline continues;
    the rejected ones are dropped from them later.
    """

    def observe_undecoded(self, rows: DataFrame, source: str) -> DataFrame:
        """`rows`: decoded rows of a source, some of which may have a decode error."""

    def observe_unsatisfied(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        """`rows`: rows of a step, some of which may not satisfy the expectations."""

    def observe_dropped(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        """`rows`: rows of a step, of which those that do not satisfy the expectations are no dead
        letters.
        """


class RejectedRowCounter:
    """Counts the rejected rows of streams in the progress event of the batch."""

    def observe_undecoded(self, rows: DataFrame, source: str) -> DataFrame:
        if not rows.isStreaming:
            return rows
        undecoded = F.count(decode.DECODE_ERROR)
        metric = rejected_metric(source, UNDECODED)
        return rows.observe(f"undecoded_{source}", undecoded.alias("dead"), undecoded.alias(metric))

    def observe_unsatisfied(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        dead = F.count_if(~dead_letters.satisfies_all(expectations)).alias("dead")
        return rows.observe(f"broken_{step}", dead, *dead_letters.count_by_rule(step, expectations))

    def observe_dropped(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        return rows.observe(f"dropped_{step}", *dead_letters.count_by_rule(step, expectations))


class RejectedRowCollector:
    """Collects the rejected rows as dead letters, except those of the sources and steps in
    `skip`.
    """

    def __init__(self, skip: Collection[str] = ()) -> None:
        self.letters: list[DataFrame] = []
        self._skip = skip

    def observe_undecoded(self, rows: DataFrame, source: str) -> DataFrame:
        if source not in self._skip:
            self.letters.append(dead_letters.from_undecoded(rows))
        return rows

    def observe_unsatisfied(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        if step not in self._skip:
            self.letters.append(dead_letters.from_rejected(rows, step, expectations))
        return rows

    def observe_dropped(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        return rows


@dataclass(frozen=True, slots=True)
class DeferredExpectations:
    """Expectations of a stateful step (aggregates, for example), and its rows before they are
    applied.

    They cannot be counted in the query's plan, so the sink applies them to each batch.
    """

    step: str
    rows: DataFrame
    expectations: tuple[Expectation, ...]


@dataclass(slots=True)
class Views:
    """DataFrames of the sources and steps by name, and the expectations that are left to the sinks,
    by step.
    """

    frames: dict[str, DataFrame] = field(default_factory=dict)
    deferred: dict[str, DeferredExpectations] = field(default_factory=dict)

    def add(self, name: str, rows: DataFrame) -> None:
        self.frames[name] = rows
        rows.createOrReplaceTempView(name)

    def rows_for_sinks(self, name: str) -> DataFrame:
        """The rows from which sinks of this view write: those before the deferred expectations are
        applied, if the view has any.
        """
        deferred = self.deferred.get(name)
        return self.frames[name] if deferred is None else deferred.rows

    def check_deferred(self, written: Iterable[str]) -> None:
        """Raises PipelineError if a step has deferred expectations and no sink writes it.
        `written`: views of sinks.
        """
        if unwritten := set(self.deferred) - set(written):
            raise PipelineError(
                f"rows of {', '.join(sorted(unwritten))} come from aggregates or joins and are read by further steps, "
                "where dead letters cannot be written; move the expectation to the last step, or use "
                "onFail: drop or fail"
            )


def build_views(
    spark: SparkSession,
    pipeline: PipelineDefinition,
    raw: Mapping[str, DataFrame],
    rejected: RejectedRows,
    tables: Mapping[str, DataFrame] | None = None,
    unused: Mapping[str, Collection[str]] | None = None,
) -> Views:
    """Builds the views from raw rows of each source. `tables`: decoded rows, of sources that have
    no raw ones. `unused`: by source, columns that are not parsed. Raises PipelineError that names
    the field.
    """
    views = Views()
    spec = pipeline.spec
    for name, source in spec.sources.items():
        if tables is not None and name in tables:
            views.add(name, tables[name])
            continue
        rows = decode.decode_rows(raw[name], pipeline, name, (unused or {}).get(name, ()))
        if spec.dead_letter is None:
            rows = decode.fail_on_undecoded(rows)
        else:
            rows = decode.drop_undecoded(rejected.observe_undecoded(rows, name))
        if source.watermark is not None:
            delay = _watermark_delay(source.watermark, spec.dedupe)
            with decode.field_errors(f"spec.sources.{name}.watermark"):
                rows = rows.withWatermark(source.watermark.column, delay)
        if source.mode == "stream":
            rows = _deduplicate(rows, pipeline, name)
        views.add(name, rows)
    for index, step in enumerate(spec.transforms):
        where = f"spec.transforms[{index}] ({step.name})"
        with decode.field_errors(where):
            rows = run_step(spark, step, views.frames, pipeline.folder)
        with decode.field_errors(f"{where}.expect"):
            rows = _apply_expectations(views, step, rows, rejected, has_dead_letters=spec.dead_letter is not None)
        views.add(step.name, rows)
    return views


def _watermark_delay(watermark: Watermark, dedupe: Dedupe | None) -> str:
    """Spark remembers rows for deduplication as long as the watermark's delay. So the delay is that
    of the watermark or the time of the deduplication, whichever is longer.
    """
    delays = [watermark.delay, *([dedupe.within] if dedupe is not None and dedupe.within is not None else [])]
    return spark_interval(max(delays, key=parse_duration_ms))


def _deduplicate(rows: DataFrame, pipeline: PipelineDefinition, name: str) -> DataFrame:
    """Drops duplicate rows. Of several streams, those without one of the columns are not
    deduplicated. Raises PipelineError if the only stream lacks one, or a watermark is missing.
    """
    dedupe = pipeline.spec.dedupe
    if dedupe is None:
        return rows
    if not set(dedupe.columns) <= set(rows.columns):
        if len(pipeline.spec.streams) == 1:
            missing = ", ".join(sorted(set(dedupe.columns) - set(rows.columns)))
            raise PipelineError(f"spec.dedupe.columns: {name} has no column {missing}")
        return rows
    if dedupe.within is None or not rows.isStreaming:
        return rows.dropDuplicates(list(dedupe.columns))
    if pipeline.spec.sources[name].watermark is None:
        raise PipelineError(f"spec.dedupe.within: {name} needs a watermark, whose column is the event time")
    return rows.dropDuplicatesWithinWatermark(list(dedupe.columns))


def _apply_expectations(
    views: Views, step: Transform, rows: DataFrame, rejected: RejectedRows, *, has_dead_letters: bool
) -> DataFrame:
    """The step's rows that satisfy its expectations. Others are dropped, fail the batch or become
    dead letters. Adds to `views.deferred` what the sinks apply.
    """
    by_reaction: dict[str, list[Expectation]] = {"deadLetter": [], "drop": [], "fail": []}
    for expectation in step.expect:
        without_dead_letters = expectation.on_fail == "deadLetter" and not has_dead_letters
        by_reaction["fail" if without_dead_letters else expectation.on_fail].append(expectation)
    for expectation in by_reaction["fail"]:
        rows = rows.where(_satisfied_or_fail(step.name, expectation))
    if by_reaction["drop"]:
        rows = rejected.observe_dropped(rows, step.name, by_reaction["drop"])
        rows = rows.where(dead_letters.satisfies_all(by_reaction["drop"]))
    if not (expectations := by_reaction["deadLetter"]):
        return rows
    if is_stateful(rows):
        views.deferred[step.name] = DeferredExpectations(step.name, rows, tuple(expectations))
    else:
        rows = rejected.observe_unsatisfied(rows, step.name, expectations)
    return rows.where(dead_letters.satisfies_all(expectations))


def _satisfied_or_fail(step: str, expectation: Expectation) -> Column:
    message = mark_message(f"a row of {step} does not satisfy {expectation.name}: {expectation.sql}")
    failure = F.raise_error(F.lit(message)).cast("boolean")
    return F.when(dead_letters.satisfies(expectation), F.lit(True)).otherwise(failure)


def is_stateful(rows: DataFrame) -> bool:
    """True if the rows are computed from streams with state (aggregates, dedupe, joins of two
    streams).
    """

    def has_state(plan: Any) -> bool:
        if not plan.isStreaming():
            return False
        children: Sequence[Any] = [plan.children().apply(at) for at in range(plan.children().size())]
        name = plan.nodeName()
        if name in STATEFUL_OPERATORS or (name == "Join" and all(child.isStreaming() for child in children)):
            return True
        return any(has_state(child) for child in children)

    return has_state(rows._jdf.queryExecution().analyzed())
