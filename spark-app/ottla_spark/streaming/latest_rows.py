"""The latest row of each key in a batch, for sinks that replace rows by their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla_spark.lake_sql import merge
from ottla_spark.streaming.encode import output_columns

_VIEW: Final = "ottla_batch"
_ORDER: Final = "_ottla_order"
_ROW: Final = "_ottla_latest"


def latest_rows(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """One row for each key, with the columns that are written.

    Of rows with the same key, it is the one with the largest offset: the records of a key are in
    one partition. Rows without the column `_offset` have no such order, and the last row of a
    Spark partition is taken; results of aggregates have each key once.
    """
    columns = output_columns(rows)
    order = F.col("_offset") if "_offset" in rows.columns else F.monotonically_increasing_id()
    ordered = rows.select(*[F.col(f"`{name}`") for name in columns], order.alias(_ORDER))
    row = F.struct(*[F.col(f"`{name}`") for name in columns])
    latest = ordered.groupBy(*[F.col(f"`{name}`").alias(f"_key_{at}") for at, name in enumerate(key)]).agg(
        F.max_by(row, _ORDER).alias(_ROW)
    )
    return latest.select(*[F.col(_ROW).getField(name).alias(name) for name in columns])


def merge_latest_rows(rows: DataFrame, table: str, key: Sequence[str]) -> None:
    """Replaces the rows of a lake table by the latest of each key, in one commit. table: quoted."""
    # MERGE reads its source twice, and takes no plan that could have other rows the second time.
    latest = latest_rows(rows, key).localCheckpoint()
    latest.createOrReplaceTempView(_VIEW)
    rows.sparkSession.sql(merge(table, _VIEW, latest.columns, key))
