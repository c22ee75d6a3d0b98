"""Rows that are set aside: what is written of them, and when there are too many.

A dead letter is a record in the pipeline's dead-letter topic. One that did not decode keeps its key and value as they
were; a row that broke an expectation is written as JSON. Headers say `ottla.pipeline`, `ottla.reason`, and
`ottla.topic`, `ottla.partition`, `ottla.offset` of the record it came from, where a row still knows (sums do not).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from ottla_spark.decode import FAULT
from ottla_spark.spec import DeadLetter, Expectation
from ottla_spark.trouble import Trouble

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def undecoded(rows: DataFrame) -> DataFrame:
    """The letters of decoded rows that have a fault."""
    return rows.where(f"{FAULT} IS NOT NULL").selectExpr(
        "_key AS key",
        "_value AS value",
        f"{FAULT} AS reason",
        "_topic AS topic",
        "_partition AS partition",
        "_offset AS offset",
    )


def holds(expectation: Expectation) -> Column:
    """Whether a row fulfils an expectation; null counts as broken."""
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(expectation.sql).cast("boolean"), F.lit(False))


def all_hold(expectations: Sequence[Expectation]) -> Column:
    """Whether a row fulfils all of them."""
    return reduce(lambda found, more: found & more, map(holds, expectations))


def broken(rows: DataFrame, step: str, expectations: Sequence[Expectation]) -> DataFrame:
    """The letters of rows that break one of the expectations; the first that is broken is the reason."""
    from pyspark.sql import functions as F

    reason = reduce(
        lambda found, e: found.when(~holds(e), f"{step} expects {e.name}: {e.sql}"),
        expectations,
        F.when(F.lit(False), F.lit("")),
    )
    own = [name for name in rows.columns if not name.startswith("_")]
    origin = [
        (F.col(f"_{name}") if f"_{name}" in rows.columns else F.lit(None)).cast(kind).alias(name)
        for name, kind in (("topic", "string"), ("partition", "int"), ("offset", "bigint"))
    ]
    value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in own]), {"ignoreNullFields": "false"}).cast("binary")
    letters = rows.select(
        F.lit(None).cast("binary").alias("key"), value.alias("value"), reason.alias("reason"), *origin
    )
    return letters.where("reason IS NOT NULL")


def records(letters: DataFrame, pipeline: str) -> DataFrame:
    """Dead letters as the connector writes them: key, value, headers."""
    from pyspark.sql import functions as F

    headers = [("ottla.pipeline", F.lit(pipeline)), ("ottla.reason", F.col("reason"))]
    headers += [(f"ottla.{name}", F.col(name).cast("string")) for name in ("topic", "partition", "offset")]
    pairs = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in headers]
    return letters.select("key", "value", F.array(*pairs).alias("headers"))


def judge(dead: int, rows: int, letter: DeadLetter) -> None:
    """Trouble when more of a batch's rows were set aside than the pipeline puts up with."""
    if rows and dead / rows > letter.max_rate:
        raise Trouble(
            f"{dead} of {rows} rows of a batch were set aside, more than maxRate {letter.max_rate:g} allows; "
            f"the topic {letter.topic} has them with the reasons"
        )
