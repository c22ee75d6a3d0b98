"""From sources to the rows that sinks write: decoding, dedupe, steps in SQL or Python, and what rows must fulfil.

The same graph serves streams on a broker and, in `testing.py`, plain rows from files: it only sees DataFrames.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla_spark import dead_letter, decode
from ottla_spark.duration import interval, milliseconds
from ottla_spark.spec import Dedupe, Expectation, Pipeline, Transform, Watermark
from ottla_spark.trouble import Trouble, in_words, marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATEFUL = frozenset(
    {
        "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit", "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPandas",
    }
)  # fmt: skip


class Aside(Protocol):
    """What is done about rows that are to be set aside; each method returns the rows that go on being looked at."""

    def undecoded(self, rows: DataFrame, name: str) -> DataFrame:
        """Rows of the source `name` with `_fault`."""

    def broken(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        """Rows of a step, some of which may break the expectations."""


class Counting:
    """Counts them, for the progress event of the batch: `set_aside.py` then fetches them. Streams only."""

    def undecoded(self, rows: DataFrame, name: str) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.observe(f"undecoded_{name}", F.count(decode.FAULT).alias("dead")) if rows.isStreaming else rows

    def broken(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.observe(f"broken_{step}", F.count_if(~dead_letter.all_hold(expectations)).alias("dead"))


class Collecting:
    """Collects them as letters, except those of the steps in `leave_out`."""

    def __init__(self, leave_out: Collection[str] = ()) -> None:
        self.letters: list[DataFrame] = []
        self._leave_out = leave_out

    def undecoded(self, rows: DataFrame, name: str) -> DataFrame:
        if name not in self._leave_out:
            self.letters.append(dead_letter.undecoded(rows))
        return rows

    def broken(self, rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
        if step not in self._leave_out:
            self.letters.append(dead_letter.broken(rows, step, expectations))
        return rows


@dataclass(frozen=True, slots=True)
class Late:
    """Rows out of state (sums, for example) before they were held against their expectations: the sink does that,
    batch by batch."""

    step: str
    rows: DataFrame
    expectations: tuple[Expectation, ...]


@dataclass(slots=True)
class Graph:
    """The pipeline's relations by name; and those whose expectations are left to the sinks."""

    tables: dict[str, DataFrame] = field(default_factory=dict)
    late: dict[str, Late] = field(default_factory=dict)

    def check_late(self, written: Iterable[str]) -> None:
        """Trouble when the expectations of a step would be left to a sink, and no sink writes it. `written`: what sinks do."""
        if untold := set(self.late) - set(written):
            raise Trouble(
                f"rows of {', '.join(sorted(untold))} come out of sums or joins and go into further steps; those that "
                "break an expectation cannot be set aside there: expect it of the last step, or use onFail: drop or fail"
            )


def graph(spark: SparkSession, pipeline: Pipeline, raw: Mapping[str, DataFrame], aside: Aside) -> Graph:
    """The graph over raw rows of each source (columns of `source.RAW`). Trouble names the field that is wrong."""
    made = Graph()
    spec = pipeline.spec
    for name, source in spec.sources.items():
        rows = decode.decoded(raw[name], source, name)
        rows = decode.all_or_fail(rows) if spec.dead_letter is None else decode.good(aside.undecoded(rows, name))
        if source.watermark is not None:
            delay = _watermark_delay(source.watermark, spec.dedupe)
            rows = _said(f"spec.sources.{name}.watermark", partial(rows.withWatermark, source.watermark.column, delay))
        if source.mode == "stream":
            rows = _deduped(rows, pipeline, name)
        _show(made, name, rows)
    for at, step in enumerate(spec.transforms):
        where = f"spec.transforms[{at}] ({step.name})"
        rows = _said(where, partial(_step, spark, step, made.tables, pipeline.folder))
        _show(made, step.name, _said(f"{where}.expect", partial(_expected, made, step, rows, pipeline, aside)))
    return made


def _watermark_delay(watermark: Watermark, dedupe: Dedupe | None) -> str:
    """The delay as Spark writes it.

    Spark remembers rows as long as it waits for late ones, so dedupe may need it longer.
    """
    asked = [watermark.delay, *([dedupe.within] if dedupe is not None and dedupe.within is not None else [])]
    return interval(max(asked, key=milliseconds))


def _show(made: Graph, name: str, rows: DataFrame) -> None:
    made.tables[name] = rows
    rows.createOrReplaceTempView(name)


def _said(where: str, do: Callable[[], DataFrame]) -> DataFrame:
    from pyspark.errors import PySparkException

    try:
        return do()
    except (PySparkException, Trouble) as error:
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
    if pipeline.spec.sources[name].watermark is None:
        raise Trouble(f"spec.dedupe.within: {name} needs a watermark, whose column says when a row happened")
    return rows.dropDuplicatesWithinWatermark(list(wish.columns))


def _step(spark: SparkSession, step: Transform, tables: Mapping[str, DataFrame], folder: Path) -> DataFrame:
    from pyspark.errors import AnalysisException, PySparkException

    if step.sql is not None:
        try:
            return spark.sql(step.sql)
        except AnalysisException as error:
            if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
                raise Trouble(f"{in_words(error)}; there are {', '.join(tables)}") from error
            raise
    function = _function(step.python or "", folder)
    try:
        made = function(dict(tables))
    except (Trouble, PySparkException):
        raise
    except Exception as error:  # whatever the pipeline's own code raises
        raise Trouble(f"{step.python} raised {type(error).__name__}: {error}") from error
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
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the pipeline's own code raises
        raise Trouble(f"{path} raised {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise Trouble(f"{reference}: {path} has no function {name}")
    return found  # type: ignore[no-any-return]


def _expected(made: Graph, step: Transform, rows: DataFrame, pipeline: Pipeline, aside: Aside) -> DataFrame:
    """The rows that fulfil what the step expects. Those that do not are dropped, fail the batch, or are set aside."""
    has_letters = pipeline.spec.dead_letter is not None
    letters = [e for e in step.expect if e.on_fail == "deadLetter" and has_letters]
    fatal = [e for e in step.expect if e.on_fail == "fail" or (e.on_fail == "deadLetter" and not has_letters)]
    for expectation in fatal:
        rows = rows.where(_or_fail(step.name, expectation))
    dropping = [e for e in step.expect if e.on_fail == "drop"]
    if dropping:
        rows = rows.where(dead_letter.all_hold(dropping))
    if not letters:
        return rows
    if stateful(rows):
        made.late[step.name] = Late(step.name, rows, tuple(letters))
    else:
        rows = aside.broken(rows, step.name, letters)
    return rows.where(dead_letter.all_hold(letters))


def _or_fail(step: str, expectation: Expectation) -> Any:
    from pyspark.sql import functions as F

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
