"""The commands `validate`, which plans a pipeline's views, and `test`, which computes them from
files. Neither needs brokers.

A test case is a folder beside the pipeline's file: for `delays.yaml`, each folder in
`delays.test/`.

    delays.test/one-morning/
        given/flights.jsonl         records of the source `flights`, one for each line
        given/airlines.jsonl
        expect/delays.jsonl         rows of the sink or view `delays`, in any order
        expect/dead-letters.jsonl   optional: {"reason": …} and other columns to compare

A line of `given` is the record's value, or `{"key": …, "value": …}`; tables need keys. Values and
keys of sources in the registry's framing are given as JSON too, and encoded by the reader's schema.
A line that is not JSON is the record's value as it is. A line of `expect` has the columns to
compare. Rows of a sink that registers their schema are encoded and decoded with it first. Of an
Iceberg, Delta or JDBC sink with `outputMode: update`, the rows that its table then has are
compared: the last of each key, unless that row satisfies `deleteWhen`. All records are in one
batch, so aggregates are over all rows, and late rows are not tested.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ottla_operator.resources.sinks import Sink
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import PipelineError, describe_error
from ottla_spark.schema_registry import NO_REGISTRY
from ottla_spark.spark_conf import SHUFFLE_PARTITIONS, spark_conf
from ottla_spark.streaming import sink, source, transform
from ottla_spark.streaming.encode import check_format, output_columns, record_name, schema_of_columns
from ottla_spark.streaming.foreach_writer import foreach_writer
from ottla_spark.streaming.framed_records import decoded_value, encoded_row
from ottla_spark.streaming.given_records import GIVEN_ID, EncodeJson, encode_text, given_encoder
from ottla_spark.streaming.latest_rows import DELETED, latest_rows
from ottla_spark.streaming.session import start_session

DEAD_LETTERS: Final = "dead-letters"
_MAX_DIFFERENCES: Final = 10

RawRow = tuple[bytes | None, bytes | None, str, int, int, datetime]
"""Key, value, topic, partition, offset and timestamp, as in `source.RAW_SCHEMA`."""
CaseRow = Mapping[str, Any]
"""An expected or actual row: column → value, as JSON has it."""


def plan_pipeline(pipeline: PipelineDefinition) -> None:
    """Raises PipelineError unless Spark can plan all views as streams.

    That checks schemas, watermarks, SQL, expectations, columns of keys, and output modes.
    """
    with local_session(pipeline) as spark:
        plan_in_session(spark, pipeline)


def plan_in_session(spark: SparkSession, pipeline: PipelineDefinition) -> None:
    """`plan_pipeline` in a session that exists."""
    with tempfile.TemporaryDirectory(prefix="ottla-spark-") as empty:
        stream = spark.readStream.schema(source.RAW_SCHEMA).format("json")
        raw = {name: stream.load(empty) for name in pipeline.spec.streams}
        for name in pipeline.spec.tables:
            raw[name] = source.table_rows(spark.createDataFrame([], source.RAW_SCHEMA))
        views = transform.build_views(spark, pipeline, raw, transform.RejectedRowCounter())
        views.check_deferred(target.source for target in pipeline.spec.sinks)
        for target in pipeline.spec.sinks:
            rows = views.frames[target.source]
            sink.check_columns(target, rows)
            check_format(target, rows)
            if target.foreach is not None:
                foreach_writer(target.foreach, pipeline.folder)
            _check_output_mode(spark, target, rows)


def _check_output_mode(spark: SparkSession, target: Sink, rows: DataFrame) -> None:
    """The check that Spark runs when a query starts: whether the plan supports the output mode."""
    jvm: Any = spark._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, target.output_mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        raise PipelineError(f"sink {target.query_name}: {describe_error(error)}") from error


def run_cases(pipeline: PipelineDefinition, cases: Path, report: Callable[[str], None]) -> int:
    """Runs every test case and reports the results in lines. Returns the number of cases that
    failed.

    Raises PipelineError if there is no case or one cannot run.
    """
    folders = sorted(folder for folder in cases.iterdir() if folder.is_dir()) if cases.is_dir() else []
    if not folders:
        raise PipelineError(
            f"no test cases in {cases}: a test case is a folder with given/<source>.jsonl and expect/<sink>.jsonl"
        )
    failed = 0
    with local_session(pipeline) as spark:
        without_registry = replace(pipeline, registry=NO_REGISTRY)
        for folder in folders:
            differences = run_case(spark, without_registry, folder)
            failed += bool(differences)
            report(f"{folder.name}: {'failed' if differences else 'passed'}")
            for line in differences:
                report(f"  {line}")
    return failed


@contextmanager
def local_session(pipeline: PipelineDefinition) -> Iterator[SparkSession]:
    """Spark on this machine with the pipeline's configuration, but few partitions, because there is
    little data.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-spark-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        conf = {**pipeline.spec.spark.conf, SHUFFLE_PARTITIONS: "2"}
        settings = spark_conf(conf, master="local[2]", jars=[], scratch=scratch, log=scratch / "spark.log")
        spark = start_session(pipeline.name, settings, scratch)
        try:
            yield spark
        finally:
            spark.stop()


def compute_views(
    spark: SparkSession, pipeline: PipelineDefinition, given: Mapping[str, Sequence[RawRow]]
) -> tuple[dict[str, DataFrame], DataFrame | None]:
    """The pipeline's views, computed from raw rows of its sources, and the dead letters: None if no
    view can have any.
    """
    raw = {name: spark.createDataFrame(list(given.get(name, ())), source.RAW_SCHEMA) for name in pipeline.spec.sources}
    raw |= {name: source.table_rows(raw[name]) for name in pipeline.spec.tables}
    collector = transform.RejectedRowCollector()
    views = transform.build_views(spark, pipeline, raw, collector)
    letters = reduce(lambda before, it: before.unionByName(it), collector.letters) if collector.letters else None
    return views.frames, letters


def run_case(spark: SparkSession, pipeline: PipelineDefinition, case: Path) -> list[str]:
    """Differences between the expected and the actual rows of a case, in lines; an error of Spark
    is such a line too. Raises PipelineError if a file of the case cannot be used.
    """
    given = {}
    for file in sorted((case / "given").glob("*.jsonl")):
        if file.stem not in pipeline.spec.sources:
            raise PipelineError(f"{file}: the pipeline has no source named {file.stem}")
        given[file.stem] = parse_given_file(file, pipeline, file.stem)
    expected = {file.stem: parse_expected(file) for file in sorted((case / "expect").glob("*.jsonl"))}
    if not expected:
        raise PipelineError(f"{case}: no expect/<sink>.jsonl")
    views, letters = compute_views(spark, pipeline, given)
    lines: list[str] = []
    try:
        by_sink = {target.query_name: written_rows(views[target.source], target) for target in pipeline.spec.sinks}
        for name, rows in expected.items():
            if name == DEAD_LETTERS:
                actual = [json.loads(line) for line in letters.toJSON().collect()] if letters is not None else []
            elif name in by_sink or name in views:
                actual = collect_rows(by_sink[name] if name in by_sink else views[name])
            else:
                raise PipelineError(f"{case}: the pipeline has no sink, source or transform named {name}")
            lines += [f"{name}: {line}" for line in compare_rows(rows, actual)]
    except PySparkException as error:
        lines.append(describe_error(error))
    return lines


def collect_rows(rows: DataFrame) -> list[CaseRow]:
    """The rows as a sink writes them."""
    columns = [F.col(f"`{name}`") for name in output_columns(rows)]
    texts = rows.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row")).collect()
    return [json.loads(row["row"]) for row in texts]


def written_rows(rows: DataFrame, target: Sink) -> DataFrame:
    """The rows that a consumer of the sink sees. A table that is updated by key has the latest row
    of each key, unless that row is deleted.
    """
    if target.output_mode != "update" or target.topic is not None or not target.key:
        return read_back(rows, target)
    latest = latest_rows(rows, target.key, target.delete_when)
    return latest if target.delete_when is None else latest.where(f"NOT {DELETED}")


def read_back(rows: DataFrame, target: Sink) -> DataFrame:
    """The rows of a sink as a consumer decodes them, if the sink registers their schema; otherwise
    the same rows.
    """
    if target.format is None or not target.format.registers:
        return rows
    columns = T.StructType([rows.schema[name] for name in output_columns(rows)])
    schema, _ = schema_of_columns(target.format.type, columns, record_name(target.topic or ""))
    row = F.struct(*[F.col(f"`{name}`") for name in columns.names])
    value = encoded_row(row, schema, GIVEN_ID, columns)
    return rows.select(F.inline(F.array(decoded_value(value, schema, NO_REGISTRY, "_error"))))


def parse_given_file(file: Path, pipeline: PipelineDefinition, name: str) -> list[RawRow]:
    """Raw rows of a source. Raises PipelineError that names the line."""
    value, key = given_encoder(pipeline.readers.get(name)), given_encoder(pipeline.key_readers.get(name))
    rows = parse_given(file.read_text().splitlines(), pipeline.spec.sources[name].topic, key, value)
    try:
        return list(rows)
    except ValueError as error:
        raise PipelineError(f"{file}:{error}") from error


def parse_given(
    lines: Sequence[str], topic: str, encode_key: EncodeJson = encode_text, encode_value: EncodeJson = encode_text
) -> Iterator[RawRow]:
    """Raw rows from the lines of a `given` file. Raises ValueError, with the line's number, for a
    key or value that does not match its schema.
    """
    for offset, line in enumerate(lines):
        if line.strip():
            try:
                key, value = _parse_record(line, encode_key, encode_value)
            except ValueError as error:
                raise ValueError(f"{offset + 1}: {error}") from error
            yield key, value, topic, 0, offset, datetime.fromtimestamp(offset, UTC)


def _parse_record(line: str, encode_key: EncodeJson, encode_value: EncodeJson) -> tuple[bytes | None, bytes | None]:
    try:
        record = json.loads(line)
    except ValueError:
        return None, line.encode()
    if not isinstance(record, dict) or "value" not in record or not record.keys() <= {"key", "value"}:
        return None, line.encode() if encode_value is encode_text else encode_value(record)
    key, value = record.get("key"), record["value"]
    return (None if key is None else encode_key(key)), (None if value is None else encode_value(value))


def parse_expected(file: Path) -> list[CaseRow]:
    """Rows of a file of JSON lines. Raises PipelineError with the number of a line that is not a
    JSON object.
    """
    rows: list[CaseRow] = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise PipelineError(f"{file}:{number}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise PipelineError(f"{file}:{number}: {line.strip()}: not a JSON object with columns and their values")
            rows.append(row)
    return rows


def compare_rows(expected: Sequence[CaseRow], actual: Sequence[CaseRow]) -> list[str]:
    """A line for each row that is missing or unexpected; after ten, one with the number of the
    others. The order of rows does not count, and only columns that some expected row has are
    compared.
    """
    columns = sorted({name for row in expected for name in row})
    narrowed = [{name: row.get(name) for name in columns} for row in actual] if columns else list(actual)
    have = Counter(_text(row) for row in narrowed)
    want = Counter(_text({name: row.get(name) for name in columns}) for row in expected)
    lines = [f"missing: {text}" for text in (want - have).elements()]
    lines += [f"unexpected: {text}" for text in (have - want).elements()]
    if len(lines) > _MAX_DIFFERENCES:
        return [*lines[:_MAX_DIFFERENCES], f"and {len(lines) - _MAX_DIFFERENCES} more"]
    return lines


def _text(row: CaseRow) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False)
