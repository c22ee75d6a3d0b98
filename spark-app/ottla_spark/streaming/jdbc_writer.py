"""Writes batches to a table of PostgreSQL, each row exactly once.

Executors write the rows to a staging table, in parallel. One transaction of the driver then copies
them to the table and records the number of the batch in the table `ottla_batches`. A batch that
failed, or whose process was killed, runs again with the same number:

- If the number is recorded, the transaction had committed, and nothing is written.
- If not, no row of the batch is in the table. Staging tables of the query that were left behind are
  deleted.

The transaction locks the query's row of `ottla_batches`. So if two processes write the same batch,
for example because one was believed dead, the second copies no rows.
"""

from __future__ import annotations

import uuid
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla_operator.resources.sinks import Sink
from ottla_operator.resources.table_sinks import Jdbc
from ottla_spark import postgresql
from ottla_spark.errors import PipelineError
from ottla_spark.postgresql import TableName
from ottla_spark.secret_files import read_secret
from ottla_spark.streaming.encode import output_columns, output_types
from ottla_spark.streaming.jdbc_connection import DRIVER, JdbcConnection, connect
from ottla_spark.streaming.latest_rows import DELETED, latest_rows
from ottla_spark.streaming.sink_context import SinkContext
from ottla_spark.streaming.sink_errors import located_errors

_STAGING: Final = "ottla_staging_"
_MAX_CONNECTIONS: Final = 8
"""Tasks that write to the staging table at the same time."""
_PROPERTIES: Final = {
    "ApplicationName": "ottla",
    "stringtype": "unspecified",  # text is converted to uuid, jsonb and other types by the database
    "tcpKeepAlive": "true",
}


class JdbcWriter:
    """Writes the batches of a query."""

    def __init__(self, sink: Sink, target: Jdbc, context: SinkContext) -> None:
        self._sink = sink
        self._target = target
        self._context = context
        self._table = postgresql.parse_table(target.table)
        self._is_prepared = False

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Raises PipelineError."""
        with located_errors(self._sink, "jdbc", self._table.quoted):
            self._write(rows, number)

    def _write(self, rows: DataFrame, number: int) -> None:
        spark, query = rows.sparkSession, self._context.query_id
        properties = self._properties()
        columns = output_columns(rows)
        with connect(spark, self._target.url, properties) as database:
            if not self._is_prepared:
                prepare_tables(database, self._table, rows, self._key, query, self._context.pipeline)
                self._is_prepared = True
            (written,) = database.first_column(postgresql.last_batch_sql(self._table, lock=False), query)
            if written >= number:
                return
            staging = create_staging(database, self._table, columns, query, self._deleted)
        written_rows = latest_rows(rows, self._key, self._sink.delete_when) if self._key else rows
        staged = [*columns, *filter(None, [self._deleted])]
        stage_rows(written_rows, staged, staging, self._target.url, properties)
        self._copy_rows(spark, staging, columns, query, number)

    def _copy_rows(self, spark: SparkSession, staging: TableName, columns: list[str], query: str, number: int) -> None:
        """One transaction: the rows, and the number of the batch."""
        with connect(spark, self._target.url, self._properties()) as database:
            (written,) = database.first_column(postgresql.last_batch_sql(self._table, lock=True), query)
            if written < number:
                if self._sink.output_mode == "complete":
                    database.execute(postgresql.delete_rows_sql(self._table))
                if self._deleted:
                    database.execute(postgresql.delete_by_key_sql(self._table, staging, self._key, self._deleted))
                database.execute(postgresql.insert_rows_sql(self._table, staging, columns, self._key, self._deleted))
                database.execute(postgresql.set_batch_sql(self._table), number, query)
            database.execute(postgresql.drop_table_sql(staging))
            commit(database)

    @property
    def _key(self) -> tuple[str, ...]:
        """Columns by which rows are replaced."""
        return self._sink.key if self._sink.output_mode == "update" else ()

    @property
    def _deleted(self) -> str:
        """The staging table's column that says which rows are deleted; empty if the sink has no
        `deleteWhen`.
        """
        return "" if self._sink.delete_when is None else DELETED

    def _properties(self) -> dict[str, str]:
        secret = self._target.secret_ref
        if secret is None:
            return _PROPERTIES
        return _PROPERTIES | read_secret(self._context.secrets, secret.name, ("user", "password"))


def prepare_tables(
    database: JdbcConnection, table: TableName, rows: DataFrame, key: tuple[str, ...], query: str, pipeline: str
) -> None:
    """Creates missing tables, and the query's row of `ottla_batches` if it is new. Raises
    PipelineError if the table lacks a column of the rows, or if PostgreSQL has no type for a column
    of a new table.
    """
    columns = output_columns(rows)
    # Two sinks that create a table at the same time would fail.
    database.execute("SELECT pg_advisory_xact_lock(hashtext(?))", postgresql.BATCHES)
    if not (existing := database.first_column(postgresql.list_columns_sql(), table.quoted)):
        database.execute(postgresql.create_table_sql(table, output_types(rows), key))
        existing = columns
    if missing := [name for name in columns if name not in existing]:
        raise PipelineError(
            f"the table {table.quoted} has no column {', '.join(missing)}; it has {', '.join(existing)}; "
            "add the column, or leave it out in the step that the sink reads"
        )
    database.execute(postgresql.create_batches_table_sql(table))
    database.execute(postgresql.begin_query_sql(table), query, pipeline)
    database.commit()


def create_staging(
    database: JdbcConnection, table: TableName, columns: list[str], query: str, deleted: str
) -> TableName:
    """Creates an empty staging table, with the column `deleted` unless that name is empty. Drops
    staging tables of the query that killed processes left behind.
    """
    prefix = f"{_STAGING}{uuid.UUID(query).hex}_"
    batches = table.in_same_schema(postgresql.BATCHES)
    for name in database.first_column(postgresql.list_staging_tables_sql(), prefix, batches.quoted):
        database.execute(postgresql.drop_table_sql(TableName(name, table.schema)))
    staging = table.in_same_schema(prefix + uuid.uuid4().hex[:8])
    for statement in postgresql.create_staging_sql(staging, table, columns, deleted):
        database.execute(statement)
    database.commit()
    return staging


def stage_rows(rows: DataFrame, columns: list[str], staging: TableName, url: str, properties: dict[str, str]) -> None:
    """Executors write the rows. Each task writes its rows in one transaction."""
    numbered = rows.select(*[f"`{name}`" for name in columns], F.monotonically_increasing_id().alias(postgresql.ROW_ID))
    writer = numbered.write.format("jdbc").mode("append").options(**properties)
    options = {"url": url, "dbtable": staging.quoted, "driver": DRIVER, "reWriteBatchedInserts": "true"}
    writer.options(**options).option("batchsize", 5_000).option("numPartitions", _MAX_CONNECTIONS).save()


def commit(database: JdbcConnection) -> None:
    """The rows and the number of the batch become visible at the same time."""
    database.commit()
