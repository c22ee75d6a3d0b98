"""Columns of JSON sources that no sink needs.

Every record is parsed with the whole schema, because a value of another type makes it undecodable.
Any value is a STRING, however: a column of this type that may be null cannot make a record
undecodable, and need not be parsed where nothing uses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from ottla_spark.definition import PipelineDefinition
from ottla_spark.streaming.decode import PARSED, parse_schema

_PRUNED: Final = frozenset(
    {
        "Aggregate", "CollectMetrics", "DataSourceV2Relation", "Deduplicate", "DeduplicateWithinWatermark",
        "EventTimeWatermark", "Expand", "Filter", "Generate", "GlobalLimit", "Join", "LocalLimit", "LocalRelation",
        "Project", "Sort", "StreamingRelation", "StreamingRelationV2", "Union", "Window",
    }
)  # fmt: skip
"""Nodes whose needed columns Spark's rule knows. Others, such as INTERSECT, are replaced by rules
that run before it: in a plan that has one, every column counts as used."""
_NODE: Final = re.compile(r"^[\s:+-]*[~']?(?P<name>\w+)", re.MULTILINE)
_MAX_PASSES: Final = 10
_ALL_FIELDS: Final = 2**31 - 1


def unused_columns(
    spark: SparkSession, pipeline: PipelineDefinition, written: Iterable[DataFrame]
) -> Mapping[str, Collection[str]]:
    """By source, the columns that need not be parsed. `written`: the rows of all sinks."""
    candidates = {
        name: found
        for name, source in pipeline.spec.streams.items()
        if source.format.type == "json" and not source.format.is_framed
        if (found := _nullable_texts(parse_schema(source.format, f"spec.sources.{name}.format")))
    }
    if not candidates:
        return {}
    plans = [_simplify(spark, it) for it in written]
    before = "\n".join(map(_describe, plans))
    if {it["name"] for it in _NODE.finditer(before)} - _PRUNED:
        return {}
    after = "\n".join(_describe(_prune(spark, it)) for it in plans)
    # A column that the plan does not take by its name even before pruning may be taken in another
    # way: it counts as used.
    return {
        source: [it for it in found if _is_taken(it, before) and not _is_taken(it, after)]
        for source, found in candidates.items()
    }


def _nullable_texts(schema: StructType) -> list[str]:
    return [it.name for it in schema if it.nullable and it.dataType == StringType()]


def _simplify(spark: SparkSession, rows: DataFrame) -> Any:
    catalyst = cast(Any, spark._jvm).org.apache.spark.sql.catalyst
    plan = catalyst.optimizer.InlineCTE(True, False).apply(rows._jdf.queryExecution().analyzed())
    plan = catalyst.analysis.EliminateSubqueryAliases.apply(catalyst.analysis.EliminateView.apply(plan))
    return catalyst.optimizer.ReplaceDistinctWithAggregate.apply(plan)


def _prune(spark: SparkSession, plan: Any) -> Any:
    """The plan without columns that no node needs, by Spark's own rule."""
    rule = cast(Any, spark._jvm).org.apache.spark.sql.catalyst.optimizer.ColumnPruning
    for _ in range(_MAX_PASSES):
        before, plan = plan, rule.apply(plan)
        if plan.fastEquals(before):
            break
    return plan


def _describe(plan: Any) -> str:
    return str(plan.treeString(True, False, _ALL_FIELDS, False))


def _is_taken(name: str, plans: str) -> bool:
    """True if a field of this name is taken from any parsed value."""
    return re.search(rf"{PARSED}#\d+\.{re.escape(name)}(?!\w)", plans) is not None
