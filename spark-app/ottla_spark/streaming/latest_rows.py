"""The latest row of each key in a batch, for sinks that replace and delete rows by their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla_operator.resources.sinks import Sink
from ottla_spark.lake_sql import merge_sql
from ottla_spark.streaming.encode import output_columns

DELETED: Final = "_ottla_deleted"
"""Column of the latest rows, true in those that delete the row of their key."""
_VIEW: Final = "ottla_batch"
_ORDER: Final = "_ottla_order"
_ROW: Final = "_ottla_latest"


def is_deleted(delete_when: str) -> Column:
    """Column that is true if a row satisfies the condition. NULL counts as false."""
    return F.coalesce(F.expr(delete_when), F.lit(False))


def latest_rows(rows: DataFrame, key: Sequence[str], delete_when: str | None) -> DataFrame:
    """One row for each key, with the columns that are written and, if there is a condition,
    DELETED.

    Of rows with the same key, it is the one with the largest offset: the records of a key are in
    one partition. Rows without the column `_offset` have no such order, and the last one in Spark's
    partitions is taken; results of aggregates have each key once.
    """
    columns = output_columns(rows)
    if delete_when is not None:
        rows = rows.withColumn(DELETED, is_deleted(delete_when))
        columns.append(DELETED)
    order = F.col("_offset") if "_offset" in rows.columns else F.monotonically_increasing_id()
    ordered = rows.select(*[F.col(f"`{name}`") for name in columns], order.alias(_ORDER))
    row = F.struct(*[F.col(f"`{name}`") for name in columns])
    latest = ordered.groupBy(*[F.col(f"`{name}`").alias(f"_key_{at}") for at, name in enumerate(key)]).agg(
        F.max_by(row, _ORDER).alias(_ROW)
    )
    return latest.select(*[F.col(_ROW).getField(name).alias(name) for name in columns])


def merge_latest_rows(rows: DataFrame, table: str, sink: Sink) -> None:
    """Replaces the rows of a lake table by the latest of each key, and deletes those whose latest
    satisfies `deleteWhen`, in one commit. table: quoted.
    """
    # MERGE reads its source twice, and refuses a plan that could have other rows the second time.
    latest = latest_rows(rows, sink.key, sink.delete_when).localCheckpoint()
    latest.createOrReplaceTempView(_VIEW)
    deleted = "" if sink.delete_when is None else DELETED
    rows.sparkSession.sql(merge_sql(table, _VIEW, output_columns(latest), sink.key, deleted))
