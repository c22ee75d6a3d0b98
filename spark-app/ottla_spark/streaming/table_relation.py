"""A relation whose files are chosen for each batch.

Spark fixes the plan of a streaming query when it starts, and lists the files of a relation then.
The table here implements Spark's interface of tables in Python: for each batch, after its records
were chosen, the optimizer asks the table for a scan, and gets one of the Parquet files of that
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Properties that Spark sets in the thread of a streaming query."""


@dataclass(frozen=True, slots=True)
class BatchId:
    """A batch of a streaming query. Both are empty outside of streaming queries."""

    query: str = ""
    number: str = ""


ListFolder = Callable[[BatchId], str]
"""Folder of the Parquet files that a batch reads."""


def read_folder_of_batch(spark: SparkSession, name: str, schema: StructType, folder_of: ListFolder) -> DataFrame:
    """Rows of the folder that each batch reads. `name`: unique in the session."""
    jvm: Any = spark._jvm
    ensure_callback_server_started(cast(Any, spark.sparkContext)._gateway)  # type: ignore[no-untyped-call]
    none = getattr(getattr(jvm, "scala.None$"), "MODULE$")
    table = ParquetTable(spark, name, schema, folder_of)
    relation = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(table, none, none)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)


class ParquetTable:
    """`org.apache.spark.sql.connector.catalog.Table` over Spark's own table of Parquet files. The
    methods are called by Spark, in the thread of the query.
    """

    def __init__(self, spark: SparkSession, name: str, schema: StructType, folder_of: ListFolder) -> None:
        self._spark_context: Any = spark.sparkContext
        self._jvm = cast(Any, spark._jvm)
        self._name = name
        self._schema: Any = self._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        self._folder_of = folder_of

    def _parquet(self, folder: str | None) -> Any:
        options = self._jvm.java.util.HashMap()
        if folder is not None:
            options.put("path", folder)
            options.put("__globPaths__", "false")
        source = self._jvm.org.apache.spark.sql.execution.datasources.v2.parquet.ParquetDataSourceV2()
        return source.getTable(self._schema, self.partitioning(), options)

    def newScanBuilder(self, options: Any) -> Any:
        context = self._spark_context._jsc.sc()
        batch = BatchId(context.getLocalProperty(_QUERY_ID) or "", context.getLocalProperty(_BATCH_ID) or "")
        return self._parquet(self._folder_of(batch)).newScanBuilder(options)

    def name(self) -> str:
        return self._name

    def schema(self) -> Any:
        return self._schema

    def columns(self) -> Any:
        return self._jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util.structTypeToV2Columns(self._schema)

    def capabilities(self) -> Any:
        return self._parquet(None).capabilities()

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
