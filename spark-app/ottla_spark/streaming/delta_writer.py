"""Writes batches to a Delta table, each row exactly once.

A batch is one version of the table. Its commit has a `txn` action with the id of the query and the
number of the batch
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers). A batch that
failed, or whose process was killed, runs again with the same number: Delta skips a write whose
number is not above that of the last one with its id.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ottla_operator.resources.sinks import Sink
from ottla_operator.resources.table_sinks import Delta
from ottla_spark.lake_sql import add_columns_sql, create_table_sql, missing_columns, quote
from ottla_spark.streaming.encode import output_columns, output_types
from ottla_spark.streaming.latest_rows import merge_latest_rows
from ottla_spark.streaming.maintenance import MaintenanceSchedule
from ottla_spark.streaming.sink_context import SinkContext
from ottla_spark.streaming.sink_errors import located_errors
from ottla_spark.streaming.temporary_conf import temporary_conf

_APPLICATION: Final = "spark.databricks.delta.write.txnAppId"
_VERSION: Final = "spark.databricks.delta.write.txnVersion"
_CHECK_RETENTION: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
_LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


class DeltaWriter:
    """Writes the batches of a query."""

    def __init__(self, sink: Sink, target: Delta, context: SinkContext) -> None:
        self._sink = sink
        self._target = target
        self._context = context
        self._path = target.path if "://" in target.path else str(context.folder / target.path)
        self._table = f"delta.{quote(self._path)}"
        self._schedule = MaintenanceSchedule(target.maintenance, context.checkpoint, context.query)
        self._is_prepared = False

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Raises PipelineError."""
        with located_errors(self._sink, "delta", self._target.path):
            self._write(rows, number)

    def _write(self, rows: DataFrame, number: int) -> None:
        spark = rows.sparkSession
        if not self._is_prepared:
            prepare_table(spark, self._table, self._target, rows)
            self._is_prepared = True
        self._schedule.run_if_due(partial(maintain, spark, self._table))
        transaction = {_APPLICATION: self._context.query_id, _VERSION: str(number)}
        with temporary_conf(spark, transaction):
            commit_rows(self._sink, self._table, self._path, rows)


def commit_rows(sink: Sink, table: str, path: str, rows: DataFrame) -> None:
    """Commits one version of the table. table: quoted."""
    if sink.output_mode == "update":
        merge_latest_rows(rows, table, sink)
        return
    written = rows.select(*[quote(name) for name in output_columns(rows)])
    written.write.format("delta").mode("append" if sink.output_mode == "append" else "overwrite").save(path)


def prepare_table(spark: SparkSession, table: str, target: Delta, rows: DataFrame) -> None:
    """Creates the table if it does not exist, and adds columns that the rows have gained."""
    types = output_types(rows)
    spark.sql(create_table_sql(table, "delta", types, list(map(quote, target.partition_by))))
    if missing := missing_columns(types, spark.table(table).columns):
        spark.sql(add_columns_sql(table, missing))


def maintain(spark: SparkSession, table: str, retain_s: float) -> None:
    """Compacts the table and deletes unused files. If the process is killed in between, the next
    run deletes them.
    """
    compact_files(spark, table)
    delete_unused_files(spark, table, retain_s)


def compact_files(spark: SparkSession, table: str) -> None:
    """Rewrites small files as larger ones."""
    spark.sql(f"OPTIMIZE {table}")


def delete_unused_files(spark: SparkSession, table: str, retain_s: float) -> None:
    """Deletes files that no version of the last `retain_s` seconds needs."""
    settings = {
        # Delta refuses less than seven days, for fear of writers that are still at work. This is
        # the table's writer.
        _CHECK_RETENTION: "false",
        # Spark's default is 10,000 tasks, also for an empty folder.
        _LISTING_TASKS: str(2 * spark.sparkContext.defaultParallelism),
    }
    with temporary_conf(spark, settings):
        spark.sql(f"VACUUM {table} RETAIN {retain_s / 3600:.6f} HOURS")
