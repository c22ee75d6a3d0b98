"""Statements of the JDBC sink, as text in PostgreSQL's SQL
(https://www.postgresql.org/docs/current/).

Pure. Every identifier is quoted, so that names keep their letters and cannot be read as SQL; values
are parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_spark.errors import PipelineError

BATCHES: Final = "ottla_batches"
"""Table beside the sink's, with the number of the last batch that was written by each query."""
ROW_ID: Final = "_ottla_row"

_TYPES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
"""Spark's type → PostgreSQL's."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY: Final = re.compile(r"array<(.+)>")


@dataclass(frozen=True, slots=True)
class TableName:
    """schema: empty for the first schema of the user's search_path."""

    name: str
    schema: str = ""

    @property
    def quoted(self) -> str:
        return ".".join(map(quote, filter(None, (self.schema, self.name))))

    def in_same_schema(self, name: str) -> TableName:
        """Another table of the same schema."""
        return TableName(name, self.schema)


def parse_table(text: str) -> TableName:
    """Parses `schema.table` or `table`."""
    schema, _, name = text.rpartition(".")
    return TableName(name, schema)


def quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def postgresql_type(spark_type: str) -> str:
    """Type of a column that is created for a Spark type (`simpleString`). Raises PipelineError."""
    if found := _TYPES.get(spark_type):
        return found
    if decimal := _DECIMAL.fullmatch(spark_type):
        return f"numeric({decimal[1]},{decimal[2]})"
    if (array := _ARRAY.fullmatch(spark_type)) and array[1] in _TYPES:
        return f"{_TYPES[array[1]]}[]"
    raise PipelineError(f"PostgreSQL has no type for {spark_type}; cast the column to STRING, or use to_json")


def create_table_sql(table: TableName, columns: Mapping[str, str], key: Sequence[str]) -> str:
    """columns: name → Spark's type. Raises PipelineError for a type that PostgreSQL lacks."""
    parts = []
    for name, spark_type in columns.items():
        try:
            parts.append(f"{quote(name)} {postgresql_type(spark_type)}")
        except PipelineError as error:
            raise PipelineError(f"column {name}: {error}") from None
    if key:
        parts.append(f"PRIMARY KEY ({_list(key)})")
    return f"CREATE TABLE IF NOT EXISTS {table.quoted} ({', '.join(parts)})"


def create_batches_table_sql(table: TableName) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {table.in_same_schema(BATCHES).quoted} ("
        "query_id uuid PRIMARY KEY, pipeline text NOT NULL, batch bigint NOT NULL, "
        "written_at timestamp with time zone NOT NULL DEFAULT now())"
    )


def begin_query_sql(table: TableName) -> str:
    """Adds the query's row to BATCHES, with batch -1, unless it has one. Parameters: query id,
    pipeline.
    """
    return (
        f"INSERT INTO {table.in_same_schema(BATCHES).quoted} (query_id, pipeline, batch) VALUES (?::uuid, ?, -1) "
        "ON CONFLICT (query_id) DO NOTHING"
    )


def last_batch_sql(table: TableName, *, lock: bool) -> str:
    """Parameter: query id. lock: locks the row until the end of the transaction, so that of two
    processes that write the same batch the second sees the first one's number.
    """
    suffix = " FOR UPDATE" if lock else ""
    return f"SELECT batch FROM {table.in_same_schema(BATCHES).quoted} WHERE query_id = ?::uuid{suffix}"


def set_batch_sql(table: TableName) -> str:
    """Parameters: batch, query id."""
    return f"UPDATE {table.in_same_schema(BATCHES).quoted} SET batch = ?, written_at = now() WHERE query_id = ?::uuid"


def list_columns_sql() -> str:
    """Parameter: quoted name of the table. No rows if it does not exist."""
    return (
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped "
        "ORDER BY attnum"
    )


def list_staging_tables_sql() -> str:
    """Parameters: prefix of the tables' names, and quoted name of the table BATCHES, in whose
    schema they are.
    """
    return (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, ?) "
        "AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(?))"
    )


def create_staging_sql(
    staging: TableName, table: TableName, columns: Sequence[str], deleted: str = ""
) -> tuple[str, str]:
    """Two statements that create a table for the rows of one batch: the columns with the types of
    the sink's table, and a unique number for each row, so that a task that runs again cannot write
    its rows twice.

    deleted: name of a further column, true in rows that delete the row of their key.
    """
    further = f", ADD COLUMN {quote(deleted)} boolean NOT NULL" if deleted else ""
    return (
        f"CREATE UNLOGGED TABLE {staging.quoted} AS SELECT {_list(columns)} FROM {table.quoted} WITH NO DATA",
        f"ALTER TABLE {staging.quoted} ADD COLUMN {quote(ROW_ID)} bigint PRIMARY KEY{further}",
    )


def insert_rows_sql(
    table: TableName, staging: TableName, columns: Sequence[str], key: Sequence[str], deleted: str = ""
) -> str:
    """Copies the rows from staging, except those that are `deleted`. With a key, rows of the same
    key are replaced.
    """
    where = f" WHERE NOT {quote(deleted)}" if deleted else ""
    statement = f"INSERT INTO {table.quoted} ({_list(columns)}) SELECT {_list(columns)} FROM {staging.quoted}{where}"
    if not key:
        return statement
    changes = ", ".join(f"{quote(name)} = EXCLUDED.{quote(name)}" for name in columns if name not in key)
    return f"{statement} ON CONFLICT ({_list(key)}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"


def delete_rows_sql(table: TableName) -> str:
    """Readers see the old rows until the transaction commits, as they would not with TRUNCATE."""
    return f"DELETE FROM {table.quoted}"


def delete_by_key_sql(table: TableName, staging: TableName, key: Sequence[str], deleted: str) -> str:
    """Deletes the rows whose key is that of a `deleted` row of staging. NULL equals no key, as in
    the unique index by which rows are replaced.
    """
    condition = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in key)
    return f"DELETE FROM {table.quoted} t USING {staging.quoted} s WHERE s.{quote(deleted)} AND {condition}"


def drop_table_sql(table: TableName) -> str:
    return f"DROP TABLE IF EXISTS {table.quoted}"


def _list(columns: Sequence[str]) -> str:
    return ", ".join(map(quote, columns))
