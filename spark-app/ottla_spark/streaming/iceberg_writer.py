"""Writes batches to an Iceberg table, each row exactly once.

A batch is one snapshot. Its summary has the id of the query and the number of the batch
(`ottla.query`, `ottla.batch`), committed together with the rows. A batch that failed, or whose
process was killed, runs again with the same number: if the table's history has a snapshot with it,
nothing is written. Files of a batch that was not committed belong to no snapshot.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla_operator.resources.sinks import Sink
from ottla_operator.resources.table_sinks import Iceberg
from ottla_spark.lake_sql import add_columns_sql, create_table_sql, missing_columns, quote, quote_table
from ottla_spark.streaming.encode import output_columns, output_types
from ottla_spark.streaming.latest_rows import merge_latest_rows
from ottla_spark.streaming.maintenance import MaintenanceSchedule
from ottla_spark.streaming.sink_context import SinkContext
from ottla_spark.streaming.sink_errors import located_errors
from ottla_spark.streaming.temporary_conf import temporary_conf

QUERY: Final = "ottla.query"
BATCH: Final = "ottla.batch"
_SNAPSHOT_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."
_TABLE_PROPERTIES: Final = {"write.metadata.delete-after-commit.enabled": "true"}
"""Properties of a table that is created. Each commit writes all metadata to a new file, with a
kilobyte for each snapshot. Iceberg's default keeps these files for ever; with this property it
keeps the last hundred."""
_PREPARE_LOCK: Final = threading.Lock()
"""Held by one query at a time. Each query has its own instance of the catalog, and if the catalog
is kept in a database, two instances that create its tables there at the same time fail."""


class IcebergWriter:
    """Writes the batches of a query."""

    def __init__(self, sink: Sink, target: Iceberg, context: SinkContext) -> None:
        self._sink = sink
        self._target = target
        self._context = context
        self._table = quote_table(target.table)
        self._schedule = MaintenanceSchedule(target.maintenance, context.checkpoint, context.query)
        self._is_prepared = False

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Raises PipelineError."""
        with located_errors(self._sink, "iceberg", self._target.table):
            self._write(rows, number)

    def _write(self, rows: DataFrame, number: int) -> None:
        spark, query = rows.sparkSession, self._context.query_id
        if not self._is_prepared:
            with _PREPARE_LOCK:
                prepare_table(spark, self._target, rows)
            self._is_prepared = True
        if (written := last_batch(spark, self._target.table, query)) is not None and written >= number:
            return
        self._schedule.run_if_due(partial(maintain, spark, self._target.table))
        summary = {QUERY: query, BATCH: str(number)}
        with temporary_conf(spark, {_SNAPSHOT_PROPERTY + name: value for name, value in summary.items()}):
            commit_rows(self._sink, self._table, rows)


def commit_rows(sink: Sink, table: str, rows: DataFrame) -> None:
    """Commits one snapshot. table: quoted."""
    if sink.output_mode == "update":
        merge_latest_rows(rows, table, sink)
        return
    writer = select_table_columns(rows, table).writeTo(table)
    writer.append() if sink.output_mode == "append" else writer.overwrite(F.lit(True))


def select_table_columns(rows: DataFrame, table: str) -> DataFrame:
    """The rows with the columns of the table; those that the rows lack are NULL."""
    names = {name.lower(): name for name in output_columns(rows)}
    columns = [
        F.col(quote(names[it.name.lower()])).alias(it.name)
        if it.name.lower() in names
        else F.lit(None).cast(it.dataType).alias(it.name)
        for it in rows.sparkSession.table(table).schema.fields
    ]
    return rows.select(*columns)


def prepare_table(spark: SparkSession, target: Iceberg, rows: DataFrame) -> None:
    """Creates database and table if they do not exist, and adds columns that rows have gained."""
    table, types = quote_table(target.table), output_types(rows)
    if not spark.catalog.tableExists(table):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quote_table(target.table.rpartition('.')[0])}")
        spark.sql(create_table_sql(table, "iceberg", types, target.partition_by, _TABLE_PROPERTIES))
    if missing := missing_columns(types, spark.table(table).columns):
        spark.sql(add_columns_sql(table, missing))


def last_batch(spark: SparkSession, table: str, query: str) -> int | None:
    """Number of the last batch of the query in the table's history; None if it has none."""
    loaded = load_table(spark, table)
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        if summary.get(QUERY) == query:
            return int(summary.get(BATCH))
        parent = snapshot.parentId()
        snapshot = None if parent is None else loaded.snapshot(parent)
    return None


def load_table(spark: SparkSession, table: str) -> Any:
    """Iceberg's table, with the last commit of any process."""
    jvm: Any = spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, quote_table(table))
    loaded.refresh()
    return loaded


def maintain(spark: SparkSession, table: str, retain_s: float) -> None:
    """Compacts the table and expires old snapshots. Each step is a commit of its own. A process
    that is killed during a step can leave files that no snapshot needs.
    """
    compact_files(spark, table)
    expire_snapshots(spark, table, retain_s)


def compact_files(spark: SparkSession, table: str) -> None:
    """Rewrites small files of each partition as larger ones."""
    catalog, _, name = table.partition(".")
    spark.sql(f"CALL {quote(catalog)}.system.rewrite_data_files(table => '{name}')")


def expire_snapshots(spark: SparkSession, table: str, retain_s: float) -> None:
    """Deletes the snapshots that are older than `retain_s` seconds, and the files that only they
    need. The last snapshot stays.
    """
    catalog, _, name = table.partition(".")
    before = (datetime.now(UTC) - timedelta(seconds=retain_s)).strftime("%Y-%m-%d %H:%M:%S.%f")
    spark.sql(
        f"CALL {quote(catalog)}.system.expire_snapshots(table => '{name}', "
        f"older_than => TIMESTAMP '{before}', retain_last => 1)"
    )
