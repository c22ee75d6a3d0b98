"""From sources to the rows that sinks write: decoding, dedupe, steps in SQL or Python, and what rows must fulfil.

The same graph serves streams on a broker and, in `testing.py`, plain rows from files: it only sees DataFrames.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla_spark import dead_letter, decode
from ottla_spark.duration import interval
from ottla_spark.spec import Expectation, Pipeline, Transform
from ottla_spark.trouble import Trouble, in_words, marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATEFUL = frozenset(
    {
        "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit", "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPandas",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Late:
    """Expectations of rows that only exist once state was asked (sums, for example): the sink tells good from bad, batch by batch."""

    step: str
    expectations: tuple[Expectation, ...]


@dataclass(slots=True)
class Graph:
    """The pipeline's relations by name, and the rows that are set aside on the way."""

    tables: dict[str, DataFrame] = field(default_factory=dict)
    letters: list[DataFrame] = field(default_factory=list)
    late: dict[str, Late] = field(default_factory=dict)
    unchecked: dict[str, DataFrame] = field(default_factory=dict)


def graph(spark: SparkSession, pipeline: Pipeline, raw: Mapping[str, DataFrame], changes: Mapping[str, DataFrame]) -> Graph:
    """The graph over raw rows of each source (columns of `source.RAW`). Trouble names the field that is wrong.

    `changes`: for each table, its records as a stream: a table is read by every batch, but a record that does not decode is set aside once.
    """
    made = Graph()
    spec = pipeline.spec
    for name, source in spec.sources.items():
        rows = decode.decoded(raw[name], source, name)
        if spec.dead_letter is None:
            rows = decode.all_or_fail(rows)
        else:
            seen = rows
            if source.mode == "table":
                seen = decode.decoded(changes[name].where("_value IS NOT NULL"), source, name)
            made.letters.append(dead_letter.undecoded(seen))
            rows = decode.good(rows)
        if source.watermark is not None:
            where = f"spec.sources.{name}.watermark"
            rows = _said(where, lambda rows=rows, w=source.watermark: rows.withWatermark(w.column, interval(w.delay)))  # type: ignore[misc]
        if source.mode == "stream":
            rows = _deduped(rows, pipeline, name)
        _show(made, name, rows)
    for at, step in enumerate(spec.transforms):
        where = f"spec.transforms[{at}] ({step.name})"
        rows = _said(where, lambda step=step: _step(spark, step, made.tables, pipeline.folder))  # type: ignore[misc]
        _show(made, step.name, _said(f"{where}.expect", lambda step=step, rows=rows: _expected(made, step, rows, pipeline)))  # type: ignore[misc]
    return made


def _show(made: Graph, name: str, rows: DataFrame) -> None:
    made.tables[name] = rows
    rows.createOrReplaceTempView(name)


def _said(where: str, do: Callable[[], DataFrame]) -> DataFrame:
    from pyspark.errors import PySparkException

    try:
        return do()
    except PySparkException as error:
        raise Trouble(f"{where}: {in_words(error)}") from error


def _deduped(rows: DataFrame, pipeline: Pipeline, name: str) -> DataFrame:
    """Rows without those that came before. A stream that lacks one of the columns is left as it is, unless all do."""
    wish = pipeline.spec.dedupe
    if wish is None:
        return rows
    if not set(wish.columns) <= set(rows.columns):
        if len(pipeline.streams) == 1:
            missing = ", ".join(sorted(set(wish.columns) - set(rows.columns)))
            raise Trouble(f"spec.dedupe.columns: {name} has no column {missing}")
        return rows
    if wish.within is None or not rows.isStreaming:
        return rows.dropDuplicates(list(wish.columns))
    source = pipeline.spec.sources[name]
    if source.watermark is None:
        raise Trouble(f"spec.dedupe.within: {name} needs a watermark, whose column says when a row happened")
    return rows.withWatermark(source.watermark.column, interval(wish.within)).dropDuplicatesWithinWatermark(list(wish.columns))


def _step(spark: SparkSession, step: Transform, tables: Mapping[str, DataFrame], folder: Path) -> DataFrame:
    if step.sql is not None:
        return spark.sql(step.sql)
    made = _function(step.python or "", folder)(dict(tables))
    if not hasattr(made, "createOrReplaceTempView"):
        raise Trouble(f"{step.python} returned {type(made).__name__}, not a DataFrame")
    return made  # type: ignore[no-any-return]


def _function(reference: str, folder: Path) -> Callable[[dict[str, DataFrame]], Any]:
    """The function that `file.py:function` names; the file is looked for beside the pipeline."""
    file, _, name = reference.rpartition(":")
    path = folder / file
    if not path.exists():
        raise Trouble(f"{reference}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Trouble(f"{reference}: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise Trouble(f"{reference}: {path} has no function {name}")
    return found  # type: ignore[no-any-return]


def _expected(made: Graph, step: Transform, rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The rows that fulfil what the step expects. Those that do not are dropped, fail the batch, or become dead letters."""
    has_letters = pipeline.spec.dead_letter is not None
    aside = [e for e in step.expect if e.on_fail == "deadLetter" and has_letters]
    fatal = [e for e in step.expect if e.on_fail == "fail" or (e.on_fail == "deadLetter" and not has_letters)]
    for expectation in fatal:
        rows = rows.where(_or_fail(step.name, expectation))
    for expectation in step.expect:
        if expectation.on_fail == "drop":
            rows = rows.where(dead_letter.holds(expectation))
    if not aside:
        return rows
    if stateful(rows):
        made.late[step.name] = Late(step.name, tuple(aside))
        made.unchecked[step.name] = rows
    else:
        made.letters.append(dead_letter.broken(rows, step.name, aside))
    for expectation in aside:
        rows = rows.where(dead_letter.holds(expectation))
    return rows


def _or_fail(step: str, expectation: Expectation) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    sentence = marked(f"a row of {step} breaks {expectation.name}: {expectation.sql}")
    return F.when(dead_letter.holds(expectation), F.lit(True)).otherwise(F.raise_error(F.lit(sentence)).cast("boolean"))


def stateful(rows: DataFrame) -> bool:
    """Whether making these rows of streams needs state from batch to batch (sums, dedupe, joins of two streams)."""

    def looks_back(plan: Any) -> bool:
        if not plan.isStreaming():
            return False
        name = plan.nodeName()
        below: Sequence[Any] = [plan.children().apply(at) for at in range(plan.children().size())]
        if name in STATEFUL or (name == "Join" and all(child.isStreaming() for child in below)):
            return True
        return any(looks_back(child) for child in below)

    return looks_back(rows._jdf.queryExecution().analyzed())
