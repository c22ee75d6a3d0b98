"""Dead letters: records that did not decode, and rows that do not satisfy an expectation, with the
reason.

A dead letter is a record in the pipeline's dead-letter topic. A record that did not decode keeps
its key and value; a row is written as JSON. Headers are `ottla.pipeline`, `ottla.reason`, and
`ottla.topic`, `ottla.partition` and `ottla.offset` of the original record, which are null if the
row no longer has these columns, for example after an aggregate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla_operator.resources.pipeline import DeadLetter
from ottla_operator.resources.transforms import Expectation
from ottla_spark.errors import PipelineError
from ottla_spark.progress import rejected_metric
from ottla_spark.streaming.decode import DECODE_ERROR


def from_undecoded(rows: DataFrame) -> DataFrame:
    """Dead letters of the decoded rows that have a decode error."""
    return rows.where(f"{DECODE_ERROR} IS NOT NULL").selectExpr(
        "_key AS key",
        "_value AS value",
        f"{DECODE_ERROR} AS reason",
        "_topic AS topic",
        "_partition AS partition",
        "_offset AS offset",
    )


def satisfies(expectation: Expectation) -> Column:
    """Column that is true if a row satisfies an expectation. NULL counts as false."""
    return F.coalesce(F.expr(expectation.sql).cast("boolean"), F.lit(False))


def satisfies_all(expectations: Sequence[Expectation]) -> Column:
    return reduce(lambda all_before, it: all_before & it, map(satisfies, expectations))


def count_by_rule(view: str, expectations: Sequence[Expectation]) -> list[Column]:
    """Numbers of rows that each expectation rejects, as observed metrics. A row counts for the
    first that it does not satisfy.
    """
    counts, satisfied = list[Column](), F.lit(True)
    for it in expectations:
        counts.append(F.count_if(satisfied & ~satisfies(it)).alias(rejected_metric(view, it.name)))
        satisfied = satisfied & satisfies(it)
    return counts


def from_rejected(rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
    """Dead letters of rows that do not satisfy an expectation; the first one is the reason."""
    reason = reduce(
        lambda before, it: before.when(~satisfies(it), f"{step} expects {it.name}: {it.sql}"),
        expectations,
        F.when(F.lit(False), F.lit("")),
    )
    columns = [name for name in rows.columns if not name.startswith("_")]
    origin = [
        (F.col(f"_{name}") if f"_{name}" in rows.columns else F.lit(None)).cast(type_).alias(name)
        for name, type_ in (("topic", "string"), ("partition", "int"), ("offset", "bigint"))
    ]
    value = F.to_json(F.struct(*[F.col(f"`{it}`") for it in columns]), {"ignoreNullFields": "false"}).cast("binary")
    letters = rows.select(
        F.lit(None).cast("binary").alias("key"), value.alias("value"), reason.alias("reason"), *origin
    )
    return letters.where("reason IS NOT NULL")


def to_records(letters: DataFrame, pipeline: str) -> DataFrame:
    """Dead letters as records: key, value, headers."""
    headers = [("ottla.pipeline", F.lit(pipeline)), ("ottla.reason", F.col("reason"))]
    headers += [(f"ottla.{name}", F.col(name).cast("string")) for name in ("topic", "partition", "offset")]
    pairs = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in headers]
    return letters.select("key", "value", F.array(*pairs).alias("headers"))


def check_rate(dead_letters: int, rows: int, spec: DeadLetter) -> None:
    """Raises PipelineError if the share of a batch's rows that are dead letters is above
    maxRate.
    """
    if rows and dead_letters / rows > spec.max_rate:
        raise PipelineError(
            f"{dead_letters} of {rows} rows of a batch are dead letters, above maxRate {spec.max_rate:g}; "
            f"the topic {spec.topic} has them with the reasons"
        )
