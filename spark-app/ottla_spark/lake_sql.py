"""Statements of SQL for Iceberg and Delta tables, as text for Spark. Pure. Identifiers are
quoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final


def quote(identifier: str) -> str:
    return "`" + identifier.replace("`", "``") + "`"


def quote_table(table: str) -> str:
    """catalog.database.table with each part quoted."""
    return ".".join(map(quote, table.split(".")))


NO_PROPERTIES: Final[Mapping[str, str]] = {}


def create_table_sql(
    table: str,
    format_: str,
    columns: Mapping[str, str],
    partitions: Sequence[str],
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> str:
    """table: quoted. format_: iceberg or delta. columns: name → Spark's type. partitions: columns
    or transforms, as SQL. properties: of the table.
    """
    definition = ", ".join(f"{quote(name)} {spark_type}" for name, spark_type in columns.items())
    partitioned = f" PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    described = f" TBLPROPERTIES ({pairs})" if pairs else ""
    return f"CREATE TABLE IF NOT EXISTS {table} ({definition}) USING {format_}{partitioned}{described}"


def add_columns_sql(table: str, columns: Mapping[str, str]) -> str:
    """table: quoted. columns: name → Spark's type."""
    added = ", ".join(f"{quote(name)} {spark_type}" for name, spark_type in columns.items())
    return f"ALTER TABLE {table} ADD COLUMNS ({added})"


def missing_columns(columns: Mapping[str, str], existing: Sequence[str]) -> dict[str, str]:
    """Columns of the rows, name → type, that the table lacks. Spark's names ignore case."""
    known = {name.lower() for name in existing}
    return {name: spark_type for name, spark_type in columns.items() if name.lower() not in known}


def merge_sql(table: str, source: str, columns: Sequence[str], key: Sequence[str], deleted: str = "") -> str:
    """Statement that replaces rows of the same key and inserts the others. NULL is a value of a
    key. Columns of the table that the source lacks keep their value, and are NULL in new rows.

    table: quoted. source: view with one row for each key. deleted: a further column of the view,
    true in rows that delete the row of their key.
    """
    condition = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in key)
    named = {name.lower() for name in key}
    changes = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in columns if name.lower() not in named)
    matched = f" WHEN MATCHED THEN UPDATE SET {changes}" if changes else ""
    not_deleted = ""
    if deleted:
        matched = f" WHEN MATCHED AND s.{quote(deleted)} THEN DELETE{matched}"
        not_deleted = f" AND NOT s.{quote(deleted)}"
    names, values = (", ".join(prefix + quote(name) for name in columns) for prefix in ("", "s."))
    return (
        f"MERGE INTO {table} t USING {quote(source)} s ON {condition}{matched} "
        f"WHEN NOT MATCHED{not_deleted} THEN INSERT ({names}) VALUES ({values})"
    )
