"""The keys of a reference table that a batch looks up.

A join of a stream with a table by the table's key needs the rows of the batch's keys only. The plan
of a batch says which keys those are: it has the join and the offsets of the batch's records. So
while Spark plans a batch, the part of its plan that computes the keys runs first, and the scan of
the table then skips rows with other keys.

The whole table is read unless the looked-up rows are certainly all that the batch needs:

- Every use of the table in the plan is a join that equates its key, or all fields of its key, with
  columns of a stream. Rows of the table that match nothing are not in the join's result.
- The keys are computed from the batch's records alone, and a second run gives the same ones: no
  aggregate, deduplication or state, no function of Python, no rand().
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from ottla_operator.resources.sources import Source
from ottla_spark.lake_sql import quote
from ottla_spark.streaming.table_relation import KEY_HASH, BatchId

_TABLE_RIGHT: Final = frozenset({"Inner", "LeftOuter", "LeftSemi", "LeftAnti"})
_TABLE_LEFT: Final = frozenset({"Inner", "RightOuter"})
"""Types of joins that omit rows of the table that match nothing, by the side of the table."""
_WITHOUT_COLUMNS: Final = frozenset({"SubqueryAlias", "View"})
"""Nodes whose output is that of their child."""
_OBSERVERS: Final = frozenset({"CollectMetrics", "EventTimeWatermark"})
_UNHASHABLE: Final = ("map<", "variant")


@dataclass(frozen=True, slots=True)
class TableKey:
    """The key of a table in plans. alias: of the table's rows. column: of the key. field_count:
    number of the key's fields, 0 if it is no struct.
    """

    alias: str
    column: str
    field_count: int


@dataclass(frozen=True, slots=True)
class Lookup:
    """A plan of the batch's records, and expressions over it that are equated with the key."""

    records: Any
    keys: Sequence[Any]


def key_column(source: Source) -> str | None:
    """The column with a row's key; None if the source has none."""
    return "key" if source.key is None and source.format.type == "raw" else source.key


def key_hash(source: Source, schema: StructType) -> Column:
    """Hash of a row's key column; of the record's key where there is no such column, or it has a
    type that Spark cannot hash. `schema`: of the row.
    """
    column = key_column(source)
    return F.xxhash64("_key" if column is None or not _is_hashable(schema[column].dataType) else quote(column))


def table_key(alias: str, source: Source, schema: StructType) -> TableKey | None:
    """The key by which rows can be looked up; None if there is no such column, or Spark cannot hash
    it. `schema`: of the table's rows.
    """
    column = key_column(source)
    if column is None or not _is_hashable(type_ := schema[column].dataType):
        return None
    return TableKey(alias, column, len(type_.fields) if isinstance(type_, StructType) else 0)


def _is_hashable(type_: DataType) -> bool:
    return not any(it in type_.simpleString() for it in _UNHASHABLE)


def plan_of_batch(spark: SparkSession, batch: BatchId) -> Any:
    """The analyzed plan of a batch that is being optimized. None at any other time: a function of a
    sink that reads the table, for example, has a plan of its own.
    """
    if not batch.query:
        return None
    execution = spark._jsparkSession.streams().get(batch.query).streamingQuery().lastExecution()
    is_planned = execution.tracker().phases().contains("optimization")
    if is_planned or execution.currentBatchId() != int(batch.number):
        return None
    return execution.analyzed()


def looked_up_hashes(spark: SparkSession, plan: Any, key: TableKey, max_rows: int) -> Any:
    """Hashes of the keys that a batch looks up, as a sorted `java.util.List<Long>`. None if the
    batch needs the whole table, or if more than `max_rows` of its rows look up keys.
    """
    finder = LookupFinder(spark, key)
    lookups = finder.find(plan)
    return _collect_hashes(spark, lookups, max_rows) if lookups else None


def _collect_hashes(spark: SparkSession, lookups: Sequence[Lookup], max_rows: int) -> Any:
    jvm = cast(Any, spark._jvm)
    distinct: list[DataFrame] = []
    for lookup in lookups:
        rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, lookup.records)
        keys = [Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(it)) for it in lookup.keys]
        hashes = DataFrame(rows, spark).select(F.xxhash64(*keys).alias(KEY_HASH))
        if not any(hashes.sameSemantics(it) for it in distinct):
            distinct.append(hashes)
    union = distinct[0]
    for hashes in distinct[1:]:
        union = union.unionAll(hashes)
    sorted_hashes = F.array_sort(F.collect_set(KEY_HASH))
    # A filter with an empty list would let all rows pass: a batch without keys looks up the hash 0.
    filter_values = F.when(F.size(sorted_hashes) > 0, sorted_hashes).otherwise(F.array(F.lit(0).cast("bigint")))
    row = union.coalesce(1).limit(max_rows + 1).agg(F.count(F.lit(1)), filter_values)._jdf.head()
    return None if row.getLong(0) > max_rows else row.getList(1)


class LookupFinder:
    """Finds the lookups of one table in a plan of Catalyst."""

    def __init__(self, spark: SparkSession, key: TableKey) -> None:
        self._spark = spark
        self._jvm = cast(Any, spark._jvm)
        self._key = key
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._none = getattr(getattr(self._jvm, "scala.None$"), "MODULE$")
        self._lookups: list[Lookup] = []
        self._records_of_leaves: list[tuple[Any, Any]] = []

    def find(self, plan: Any) -> list[Lookup]:
        """Empty if the plan needs other rows of the table as well."""
        plan = self._catalyst.optimizer.InlineCTE(True, False).apply(plan)
        if plan.containsPattern(self._catalyst.trees.TreePattern.PLAN_EXPRESSION()):
            return []  # a subquery, which may read the table
        return self._lookups if self._has_lookups_only(plan) else []

    def _has_lookups_only(self, node: Any) -> bool:
        """True if the node reads the table in lookups only, which are added to `_lookups`."""
        if self._is_table(node):
            return False
        stream = self._add_lookup(node) if node.nodeName() == "Join" else None
        return all(self._has_lookups_only(it) for it in (_elements(node.children()) if stream is None else [stream]))

    def _is_table(self, node: Any) -> bool:
        return bool(node.nodeName() == "SubqueryAlias" and node.alias() == self._key.alias)

    def _add_lookup(self, join: Any) -> Any:
        """Adds a lookup if the join is one. Returns the join's side that is not the table; None if
        the join is no lookup.
        """
        equated = self._catalyst.planning.ExtractEquiJoinKeys.unapply(join)
        if equated.isEmpty():
            return None
        type_ = str(join.joinType())
        left, right = (join.left(), equated.get()._2()), (join.right(), equated.get()._3())
        for types, (table, columns), (stream, expressions) in ((_TABLE_RIGHT, right, left), (_TABLE_LEFT, left, right)):
            keys = self._keys(table, _elements(columns), _elements(expressions)) if type_ in types else []
            records = self._records(stream) if keys else None
            if records is not None and all(self._is_computed_from(records, it) for it in keys):
                self._lookups.append(Lookup(records, keys))
                return stream
        return None

    def _keys(self, table: Any, columns: Sequence[Any], expressions: Sequence[Any]) -> Sequence[Any]:
        """The expressions that are equated with the key, or with each of its fields in their order.
        Empty if one is missing, or if `table` does more than project and filter rows of the table.
        """
        projects = []
        while not self._is_table(table):
            name = table.nodeName()
            if name == "Project":
                projects.append(table)
            elif name != "Filter" and name not in _WITHOUT_COLUMNS:
                return []
            table = table.child()
        key = next(it for it in _elements(table.output()) if it.name() == self._key.column)
        found: dict[int | None, Any] = {}
        for column, expression in zip(columns, expressions, strict=True):
            if (fields := _fields_of(column, projects, key)) is not None and len(fields) <= 1:
                found[fields[0] if fields else None] = expression
        if None in found:
            return [found[None]]
        in_order = range(self._key.field_count)
        return [found[field] for field in in_order] if all(field in found for field in in_order) else []

    def _records(self, node: Any) -> Any:
        """A plan that computes the node's rows from the batch's records alone. It may have more
        rows than the node, and may lack columns. None if there is no such plan.
        """
        name = node.nodeName()
        if name in ("StreamingDataSourceV2ScanRelation", "LocalRelation"):
            return self._records_of_leaf(node)
        if name in _WITHOUT_COLUMNS or name in _OBSERVERS:
            return self._records(node.child())
        if name == "Join":
            return self._records_of_join(node)
        if name not in ("Project", "Filter", "Generate", "Union"):
            return None
        children = [self._records(it) for it in _elements(node.children())]
        if any(it is None for it in children):
            return None
        if name == "Project":
            columns = [it for it in _elements(node.projectList()) if self._is_computed_from(children[0], it)]
            return self._catalyst.plans.logical.Project(self._seq(columns), children[0])
        if name == "Union":
            before = [it.output().size() for it in _elements(node.children())]
            is_complete = before == [it.output().size() for it in children]
        else:
            expression = node.condition() if name == "Filter" else node.generator()
            is_complete = self._is_computed_from(children[0], expression)
        return node.withNewChildren(self._seq(children)) if is_complete else None

    def _records_of_join(self, join: Any) -> Any:
        """The records of the stream's side. A join with a table has no other rows of the stream.
        None for other joins.
        """
        type_ = str(join.joinType())
        if type_ in _TABLE_RIGHT and not join.right().isStreaming():
            return self._records(join.left())
        if type_ in _TABLE_LEFT and not join.left().isStreaming():
            return self._records(join.right())
        return None

    def _records_of_leaf(self, leaf: Any) -> Any:
        """The records of a stream's batch as a relation that is no stream. None if the plan does
        not have the batch's offsets.
        """
        for known, records in self._records_of_leaves:
            if known == leaf:
                return records
        sql = self._jvm.org.apache.spark.sql
        if leaf.nodeName() == "LocalRelation":  # a source without new records
            records = sql.catalyst.plans.logical.LocalRelation(leaf.output(), leaf.data(), False, self._none)
        elif leaf.startOffset().isEmpty() or leaf.endOffset().isEmpty():
            return None
        else:
            offsets = leaf.startOffset().get(), leaf.endOffset().get()
            scan = sql.execution.datasources.v2.MicroBatchScanExec(
                leaf.output(), leaf.scan(), leaf.stream(), *offsets, self._none, self._none
            )
            partitioning = self._catalyst.plans.physical.UnknownPartitioning(0)
            records = sql.execution.LogicalRDD(
                leaf.output(), scan.execute(), partitioning, self._seq([]), False, self._none,
                self._spark._jsparkSession, self._none, self._none,
            )  # fmt: skip
        self._records_of_leaves.append((leaf, records))
        return records

    def _is_computed_from(self, records: Any, expression: Any) -> bool:
        """True if the expression needs these records only and has the same value a second time."""
        if not expression.deterministic() or expression.containsPattern(self._catalyst.trees.TreePattern.PYTHON_UDF()):
            return False
        return bool(expression.references().subsetOf(records.outputSet()))

    def _seq(self, elements: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(elements)


def _elements(seq: Any) -> list[Any]:
    return [seq.apply(at) for at in range(seq.size())]


def _fields_of(column: Any, projects: Sequence[Any], key: Any) -> list[int] | None:
    """Fields by which a column is taken from the key, through projections; empty if the column is
    the key itself. None if it is computed in another way, or from another column.
    """
    fields: list[int] = []
    below = list(projects)
    while (name := column.nodeName()) != "AttributeReference" or below:
        if name == "GetStructField":
            fields.append(int(column.ordinal()))
            column = column.child()
        elif name == "Alias":
            column = column.child()
        elif name == "AttributeReference":
            items = _elements(below.pop(0).projectList())
            column = next(it for it in items if it.exprId() == column.exprId())
        else:
            return None
    return fields if column.exprId() == key.exprId() else None
