"""`validate` and `test`: a pipeline's graph over plain rows, without brokers.

A case is a folder beside the pipeline's file: for `delays.yaml`, each folder in `delays.test/`.

    delays.test/late-rows/
        given/flights.jsonl      records of the source `flights`, a line each
        given/airlines.jsonl
        expect/delays.jsonl      rows of the sink `delays`, in any order
        expect/dead-letters.jsonl   if that is there: {"reason": …} and what else is compared

A given line is the record's value as it is, or `{"key": …, "value": …}`; tables need keys. A line that is not JSON
stands for a record that is not. An expected row names the columns that are compared. Everything is read as one batch,
so sums are those of all rows: how late rows may come does not show here.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla_spark import session, sink, source, transform
from ottla_spark.spec import Pipeline, Sink
from ottla_spark.trouble import Trouble, in_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LETTERS: Final = "dead-letters"
_SHOWN: Final = 10
_RAW_SCHEMA: Final = "_key BINARY, _value BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"

RawRow = tuple[bytes | None, bytes | None, str, int, int, datetime]
Row = Mapping[str, Any]


def plan(pipeline: Pipeline) -> None:
    """Trouble unless the whole graph can be planned as streams: schemas, watermarks, SQL, expectations, columns of keys, output modes."""
    with local_session(pipeline) as spark, tempfile.TemporaryDirectory(prefix="ottla-spark-") as empty:
        stream = spark.readStream.schema(_RAW_SCHEMA).format("json")
        raw = {
            name: stream.load(empty) if of.mode == "stream" else source.newest(spark.createDataFrame([], _RAW_SCHEMA))
            for name, of in pipeline.spec.sources.items()
        }
        graph = transform.graph(spark, pipeline, raw, transform.Counting())
        graph.check_late(target.source for target in pipeline.spec.sinks)
        for target in pipeline.spec.sinks:
            rows = graph.tables[target.source]
            sink.check(target, rows)
            _check_mode(spark, target, rows)


def _check_mode(spark: SparkSession, target: Sink, rows: DataFrame) -> None:
    """What Spark checks when a query starts: whether rows of such steps can be written in this way."""
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, target.output_mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        raise Trouble(f"sink {target.query}: {in_words(error)}") from error


def test(pipeline: Pipeline, cases: Path, say: Callable[[str], None]) -> int:
    """Runs every case and says how it went; the number of cases whose rows differ.

    Trouble when there is none, or one cannot run.
    """
    folders = sorted(folder for folder in cases.iterdir() if folder.is_dir()) if cases.is_dir() else []
    if not folders:
        raise Trouble(
            f"there are no cases in {cases}: a case is a folder there, "
            "with given/<source>.jsonl and expect/<sink>.jsonl"
        )
    failed = 0
    with local_session(pipeline) as spark:
        for folder in folders:
            found = differences(spark, pipeline, folder)
            failed += bool(found)
            say(f"{folder.name}: {'as expected' if not found else 'differs'}")
            for line in found:
                say(f"  {line}")
    return failed


@contextmanager
def local_session(pipeline: Pipeline) -> Iterator[SparkSession]:
    """Spark on this machine, with the pipeline's settings and few partitions: the data is small."""
    session.check_java()
    scratch = Path(tempfile.mkdtemp(prefix="ottla-spark-"))
    try:
        conf = {**pipeline.spec.spark.conf, session.SHUFFLE_PARTITIONS: "2"}
        settings = session.settings(conf, master="local[2]", jars=[], scratch=scratch, log=scratch / "spark.log")
        spark = session.start(pipeline.name, settings)
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def relations(
    spark: SparkSession, pipeline: Pipeline, given: Mapping[str, Sequence[RawRow]]
) -> tuple[dict[str, DataFrame], DataFrame | None]:
    """The pipeline's relations over raw rows of its sources, and the letters of rows that are set aside."""
    raw = {name: spark.createDataFrame(list(given.get(name, ())), _RAW_SCHEMA) for name in pipeline.spec.sources}
    tables = {name for name, of in pipeline.spec.sources.items() if of.mode == "table"}
    raw |= {name: source.newest(raw[name]) for name in tables}
    collecting = transform.Collecting()
    graph = transform.graph(spark, pipeline, raw, collecting)
    letters = reduce(lambda found, more: found.unionByName(more), collecting.letters) if collecting.letters else None
    return graph.tables, letters


def differences(spark: SparkSession, pipeline: Pipeline, case: Path) -> list[str]:
    """What is not as a case expects, in lines for a person; none when all is."""
    from pyspark.errors import PySparkException

    given = {}
    for file in sorted((case / "given").glob("*.jsonl")):
        if (of := pipeline.spec.sources.get(file.stem)) is None:
            raise Trouble(f"{file}: the pipeline has no source named {file.stem}")
        given[file.stem] = list(raw_rows(file.read_text().splitlines(), of.topic))
    expected = {file.stem: parsed(file) for file in sorted((case / "expect").glob("*.jsonl"))}
    if not expected:
        raise Trouble(f"{case}: there is no expect/<sink>.jsonl")
    rows, letters = relations(spark, pipeline, given)
    by_sink = {target.query: rows[target.source] for target in pipeline.spec.sinks}
    lines: list[str] = []
    try:
        for name, wanted in expected.items():
            if name == LETTERS:
                found = [json.loads(line) for line in letters.toJSON().collect()] if letters is not None else []
            elif name in by_sink or name in rows:
                found = written(by_sink.get(name, rows.get(name)))
            else:
                raise Trouble(f"{case}: there is no sink, source or transform named {name}")
            lines += [f"{name}: {line}" for line in compare(wanted, found)]
    except PySparkException as error:
        lines.append(in_words(error))
    return lines


def written(rows: DataFrame | None) -> list[Row]:
    """The rows as a sink writes them, parsed."""
    from pyspark.sql import functions as F

    if rows is None:
        return []
    columns = [F.col(f"`{name}`") for name in sink.own_columns(rows)]
    texts = rows.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row")).collect()
    return [json.loads(row["row"]) for row in texts]


def raw_rows(lines: Sequence[str], topic: str) -> Iterator[RawRow]:
    """Raw rows of the lines of a `given` file."""
    for offset, line in enumerate(lines):
        if line.strip():
            key, value = _record(line)
            yield key, value, topic, 0, offset, datetime.fromtimestamp(offset, UTC)


def _record(line: str) -> tuple[bytes | None, bytes | None]:
    try:
        parsed_line = json.loads(line)
    except ValueError:
        return None, line.encode()
    if not isinstance(parsed_line, dict) or "value" not in parsed_line or not parsed_line.keys() <= {"key", "value"}:
        return None, line.encode()
    key, value = parsed_line.get("key"), parsed_line["value"]
    text = value if isinstance(value, str) else json.dumps(value)
    return None if key is None else str(key).encode(), None if value is None else text.encode()


def parsed(file: Path) -> list[Row]:
    """The rows of a file of JSON lines. Trouble names the line that is none."""
    rows = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise Trouble(f"{file}, line {number}: not JSON: {error}") from error
    return rows


def compare(wanted: Sequence[Row], found: Sequence[Row]) -> list[str]:
    """What is missing, and what is there and not wanted, whatever the order.

    Only columns that some wanted row names are compared.
    """
    columns = sorted({name for row in wanted for name in row})
    narrowed = [{name: row.get(name) for name in columns} for row in found] if columns else list(found)
    have = Counter(_text(row) for row in narrowed)
    want = Counter(_text({name: row.get(name) for name in columns}) for row in wanted)
    missing, surplus = want - have, have - want
    lines = [f"missing: {text}" for text in missing.elements()] + [
        f"not expected: {text}" for text in surplus.elements()
    ]
    if len(lines) > _SHOWN:
        return [*lines[:_SHOWN], f"and {len(lines) - _SHOWN} more"]
    return lines


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False)
