"""The column `_traceparent` of a pipeline that is traced: the header `traceparent` of a row's
record, if it is valid.

Steps keep it with `SELECT *`, as they keep the other columns that start with `_`. Topic sinks write
it as the header of the row's record.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla_spark.progress import TRACED_COUNT, TRACES
from ottla_spark.streaming.partition_writer import TRACEPARENT_HEADER

TRACEPARENT: Final = "_traceparent"
"""The column."""
_VALID: Final = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
_SAMPLED: Final = "[13579bdf]$"
_VALUES: Final = f"transform(filter(headers, it -> it.key = '{TRACEPARENT_HEADER}'), it -> CAST(it.value AS STRING))"
TRACEPARENT_OF_HEADERS: Final = f"get(filter({_VALUES}, it -> it RLIKE '{_VALID}'), 0) AS {TRACEPARENT}"
MAX_TRACED: Final = 16
"""Largest number of a batch's records that have spans. The sampled records are divided among as
many buckets by a hash, and each bucket keeps one, so that nothing grows with the batch.
"""


def traceparent_columns(rows: DataFrame) -> list[Column]:
    """The column, or nothing if the rows do not have it. A join of two streams that are traced has
    it twice: then the result is empty, too.
    """
    return [F.col(TRACEPARENT).cast("string").alias(TRACEPARENT)] if rows.columns.count(TRACEPARENT) == 1 else []


def observe_traced(rows: DataFrame) -> DataFrame:
    """The same rows. The progress event has the number of those that are sampled, and some of
    them.
    """
    if not traceparent_columns(rows):
        return rows
    sampled = F.col(TRACEPARENT).cast("string").rlike(_SAMPLED)
    bucket = F.pmod(F.hash(TRACEPARENT), F.lit(MAX_TRACED))
    record = F.struct(
        F.col(TRACEPARENT).cast("string").alias("traceparent"),
        *(F.col(f"_{name}").alias(name) for name in ("topic", "partition", "offset") if f"_{name}" in rows.columns),
    )
    records = [F.min(F.when(sampled & (bucket == at), record)).alias(f"record{at}") for at in range(MAX_TRACED)]
    return rows.observe(TRACES, F.count_if(sampled).alias(TRACED_COUNT), *records)
