"""A relation whose files are chosen for each batch.

Spark fixes the plan of a streaming query when it starts, and lists the files of a relation then.
The table here implements Spark's interface of tables in Python: for each batch, after its records
were chosen, the optimizer asks the table for a scan. The table returns a scan of that batch's
Parquet files. If the batch needs a few keys only, the scan skips pages that have none of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ottla_spark.spark_conf import IN_FILTER_THRESHOLD

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Properties that Spark sets in the thread of a streaming query."""
KEY_HASH: Final = "_key_hash"
"""Column with a hash of the row's key. The files of large tables are sorted by it."""


@dataclass(frozen=True, slots=True)
class BatchId:
    """A batch of a streaming query. Both are empty outside of streaming queries."""

    query: str = ""
    number: str = ""


@dataclass(frozen=True, slots=True)
class FolderScan:
    """What a batch reads of folders of Parquet files: all rows, or at least those whose KEY_HASH is
    one of `hashes`, a sorted `java.util.List<Long>`.
    """

    folders: Sequence[str]
    hashes: Any = None


ChooseScan = Callable[[BatchId], FolderScan]


def read_folders_of_batch(spark: SparkSession, name: str, schema: StructType, scan_of: ChooseScan) -> DataFrame:
    """Rows of the folders that each batch reads. `name`: unique in the session."""
    jvm: Any = spark._jvm
    ensure_callback_server_started(cast(Any, spark.sparkContext)._gateway)  # type: ignore[no-untyped-call]
    none = getattr(getattr(jvm, "scala.None$"), "MODULE$")
    table = ParquetTable(spark, name, schema, scan_of)
    relation = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(table, none, none)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)


class ParquetTable:
    """`org.apache.spark.sql.connector.catalog.Table` over Spark's own table of Parquet files. The
    methods are called by Spark, in the thread of the query.
    """

    def __init__(self, spark: SparkSession, name: str, schema: StructType, scan_of: ChooseScan) -> None:
        self._spark_context: Any = spark.sparkContext
        self._jvm = cast(Any, spark._jvm)
        self._name = name
        self._schema: Any = self._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        self._scan_of = scan_of
        self._listed: tuple[Sequence[str], Any] = ([], None)

    def _parquet(self, folders: Sequence[str]) -> Any:
        options = self._jvm.java.util.HashMap()
        if folders:
            options.put("paths", json.dumps(folders))
            options.put("__globPaths__", "false")
        source = self._jvm.org.apache.spark.sql.execution.datasources.v2.parquet.ParquetDataSourceV2()
        return source.getTable(self._schema, self.partitioning(), options)

    def newScanBuilder(self, options: Any) -> Any:
        context = self._spark_context._jsc.sc()
        batch = BatchId(context.getLocalProperty(_QUERY_ID) or "", context.getLocalProperty(_BATCH_ID) or "")
        scan = self._scan_of(batch)
        folders, table = self._listed
        if folders != scan.folders:  # Spark lists the files of a table once
            self._listed = scan.folders, (table := self._parquet(scan.folders))
        builder = table.newScanBuilder(options)
        if scan.hashes is None:
            return builder
        return HashScanBuilder(self._spark_context, builder, self._schema, scan.hashes)

    def name(self) -> str:
        return self._name

    def schema(self) -> Any:
        return self._schema

    def columns(self) -> Any:
        return self._jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util.structTypeToV2Columns(self._schema)

    def capabilities(self) -> Any:
        return self._parquet([]).capabilities()

    def partitioning(self) -> Any:
        transform = self._jvm.org.apache.spark.sql.connector.expressions.Transform
        return self._spark_context._gateway.new_array(transform, 0)

    def properties(self) -> Any:
        return self._jvm.java.util.HashMap()

    def toString(self) -> str:
        return self._name

    def hashCode(self) -> int:
        return len(self._name)

    def equals(self, other: Any) -> bool:
        return other is self or str(other) == self._name

    __str__ = toString

    class Java:
        """Interfaces that Py4J lets this class implement."""

        implements: ClassVar = [
            "org.apache.spark.sql.connector.catalog.Table",
            "org.apache.spark.sql.connector.catalog.SupportsRead",
        ]


class HashScanBuilder:
    """`org.apache.spark.sql.connector.read.ScanBuilder` of a scan that skips pages whose smallest
    and largest KEY_HASH have none of the hashes between them.
    """

    def __init__(self, spark_context: Any, builder: Any, schema: Any, hashes: Any) -> None:
        self._sources = spark_context._jvm.org.apache.spark.sql.sources
        self._gateway = spark_context._gateway
        self._builder = builder
        self._hash_field = schema.apply(KEY_HASH)
        self._hashes = hashes

    def pruneColumns(self, required: Any) -> None:
        # Parquet takes a column that is not read for one that has no values, and skips all pages.
        if KEY_HASH not in list(required.fieldNames()):
            required = required.add(self._hash_field)
        self._builder.pruneColumns(required)

    def build(self) -> Any:
        scan = self._builder.build()
        filters = self._gateway.new_array(self._sources.Filter, 1)
        filters[0] = self._filter(self._hashes)
        return scan.copy(
            scan.sparkSession(), scan.hadoopConf(), scan.fileIndex(), scan.dataSchema(), scan.readDataSchema(),
            scan.readPartitionSchema(), filters, scan.options(), scan.pushedAggregate(), scan.partitionFilters(),
            scan.dataFilters(),
        )  # fmt: skip

    def _filter(self, hashes: Any) -> Any:
        """A balanced tree: filters are evaluated recursively."""
        size = hashes.size()
        if size <= IN_FILTER_THRESHOLD:
            return self._sources.In(KEY_HASH, hashes.toArray())
        halves = (hashes.subList(0, size // 2), hashes.subList(size // 2, size))
        return self._sources.Or(*map(self._filter, halves))

    class Java:
        """Interfaces that Py4J lets this class implement."""

        implements: ClassVar = ["org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns"]
