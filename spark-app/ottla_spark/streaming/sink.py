"""Sinks: how the rows of a batch are written.

A batch that failed, or whose process was killed, runs again with the same number and the same
records. So the guarantees are:

- topic: exactly once for readers with `read_committed`, in transactions (`transactional_writer`).
  With `delivery: atLeastOnce` the headers `ottla.batch` and `ottla.sequence` (unique in the batch)
  identify duplicates. Keyed results in `update` mode need neither: the latest record of a key is
  the result.
- parquet: exactly once. Each batch has its own folder `batch=<number>`, which is overwritten as a
  whole; `complete` results have one folder.
- jdbc: exactly once. Rows and the number of the batch are written in one transaction of the
  database (`jdbc_writer`).
- iceberg: exactly once. A batch is one snapshot, which has its number (`iceberg_writer`).
- delta: exactly once. A batch is one version, which has its number (`delta_writer`).
- foreach: at least once (`foreach_writer`).
- console: at least once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla_operator.resources.sinks import Parquet, Sink
from ottla_spark.errors import PipelineError, describe_error
from ottla_spark.streaming.encode import RecordEncoder, output_columns
from ottla_spark.streaming.latest_rows import is_deleted
from ottla_spark.streaming.traced_records import traceparent_columns

BatchWriter = Callable[[DataFrame, int], None]
"""Writes the rows of the batch with this number."""


def file_writer(sink: Sink, folder: Path) -> BatchWriter:
    """Writer of Parquet files and of the console. `folder`: base of relative paths."""
    if sink.parquet is not None:
        return _parquet_writer(sink.parquet, complete=sink.output_mode == "complete", folder=folder)
    max_rows = sink.console.rows if sink.console is not None else 0
    return lambda rows, batch: _print_rows(sink.query_name, max_rows, rows, batch)


def check_columns(sink: Sink, rows: DataFrame) -> None:
    """Raises PipelineError if the rows lack a column that the sink names, or `deleteWhen` is no
    condition on them.
    """
    named = (*sink.key, *(target.partition_by if (target := sink.parquet or sink.delta) else ()))
    if missing := [name for name in named if name not in rows.columns]:
        raise PipelineError(
            f"sink {sink.query_name}: {sink.source} has no column {', '.join(missing)}; "
            f"it has {', '.join(output_columns(rows))}"
        )
    if sink.delete_when is not None:
        try:
            rows.where(sink.delete_when)
        except PySparkException as error:
            raise PipelineError(f"sink {sink.query_name}: deleteWhen: {describe_error(error)}") from error


def create_folder(sink: Sink, folder: Path) -> None:
    """Creates the folder of a Parquet sink if it is a local one. Raises PipelineError if it is not
    writable. `folder`: base of relative paths.
    """
    if sink.parquet is None or "://" in sink.parquet.path:
        return
    path = folder / sink.parquet.path
    try:
        path.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(path, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise PipelineError(f"sink {sink.query_name}: parquet.path: {path} is not writable: {reason}")


def record_columns(rows: DataFrame, sink: Sink, encode: RecordEncoder) -> list[Column]:
    """The columns `key` and `value` of a row's record, as bytes, and `_traceparent` where rows have
    it. They fit every batch of a stream, so they are made once.

    Rows that are records already keep key and value, unless the sink has a format. A key of the
    sink replaces theirs. A row that satisfies `deleteWhen` has no value.
    """
    is_record = is_key_value(rows) and sink.format is None
    kept = F.col("key") if is_record else F.lit(None).cast("binary")
    key = kept if encode.key is None else encode.key(rows)
    value = F.col("value") if is_record else encode.value(rows)
    if sink.delete_when is not None:
        value = F.when(~is_deleted(sink.delete_when), value)
    return [key.alias("key"), value.alias("value"), *traceparent_columns(rows)]


def is_key_value(rows: DataFrame) -> bool:
    """True if the rows are records already: `key` and `value` as bytes, and no other column that is
    written.
    """
    types = {name: type_ for name, type_ in rows.dtypes if not name.startswith("_")}
    return types == {"key": "binary", "value": "binary"}


def write_records(records: DataFrame, topic: str, kafka: Mapping[str, str]) -> None:
    """Writes records (key, value, headers) to a topic. `kafka`: client properties."""
    options = {f"kafka.{name}": value for name, value in kafka.items()}
    records.write.format("kafka").options(**options).option("topic", topic).option("includeHeaders", "true").save()


def _parquet_writer(target: Parquet, *, complete: bool, folder: Path) -> BatchWriter:
    path = target.path if "://" in target.path else str(folder / target.path)

    def write(rows: DataFrame, batch: int) -> None:
        write_parquet(rows, path if complete else f"{path}/batch={batch}", target.partition_by)

    return write


def write_parquet(rows: DataFrame, folder: str, partition_by: Sequence[str]) -> None:
    """Replaces the files of the folder."""
    files = rows.select(*[f"`{name}`" for name in output_columns(rows)]).write.mode("overwrite")
    if partition_by:
        files = files.partitionBy(*partition_by)
    files.parquet(folder)


def _print_rows(name: str, max_rows: int, rows: DataFrame, batch: int) -> None:
    text = rows.select(*[f"`{column}`" for column in output_columns(rows)])._jdf.showString(max_rows, 40, False)
    sys.stdout.write(f"{name}, batch {batch}\n{text}")
    sys.stdout.flush()
