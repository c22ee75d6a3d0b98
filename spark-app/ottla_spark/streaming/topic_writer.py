"""Writes batches to a topic at least once.

Every plan that Spark analyzes and every request to the JVM delays a batch. So whatever is the same
for all batches is made when the query starts, and the records are passed to the function that
Spark's own `save` calls last. `save` would plan them twice more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from ottla_operator.resources.sinks import Sink
from ottla_spark.streaming.encode import RecordEncoder
from ottla_spark.streaming.partition_writer import TRACEPARENT_HEADER
from ottla_spark.streaming.sink import BatchWriter, record_columns
from ottla_spark.streaming.traced_records import TRACEPARENT, traceparent_columns


def topic_writer(sink: Sink, rows: DataFrame, kafka: Mapping[str, str], encode: RecordEncoder) -> BatchWriter:
    """Writer of a topic without transactions. `rows`: the stream, whose columns each batch has.
    `kafka`: client properties.
    """
    spark = rows.sparkSession
    jvm = cast(Any, spark._jvm)
    columns = [cast(Any, it)._jc for it in record_columns(rows, sink, encode)]
    selected, order = jvm.PythonUtils.toSeq(columns), jvm.PythonUtils.toSeq(["value"])
    has_order, is_traced = "_offset" in rows.columns, bool(traceparent_columns(rows))
    send = record_sender(spark, sink.topic or "", kafka)

    def write(batch_rows: DataFrame, batch: int) -> None:
        records = batch_rows._jdf.select(selected)
        if not has_order:
            # Rows from state have no fixed order. Sorted, each row has the same sequence number if
            # the batch runs again.
            records = records.sortWithinPartitions("key", order)
        send(records.withColumn("headers", jvm.functions.expr(_headers(batch, is_traced=is_traced))))

    return write


def record_sender(spark: SparkSession, topic: str, kafka: Mapping[str, str]) -> Callable[[Any], None]:
    """A function that writes records (a Dataset with key, value, headers) to the topic."""
    jvm = cast(Any, spark._jvm)
    connector = jvm.org.apache.spark.sql.kafka010
    options = jvm.PythonUtils.toScalaMap({f"kafka.{name}": value for name, value in kafka.items()})
    options = _companion(jvm.org.apache.spark.sql.catalyst.util, "CaseInsensitiveMap").apply(options)
    properties = _companion(connector, "KafkaSourceProvider").kafkaParamsForProducer(options)
    target = jvm.scala.Some(topic)
    return lambda records: connector.KafkaWriter.write(records.queryExecution(), properties, target)


def _companion(package: Any, name: str) -> Any:
    """The companion object of a class in Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _headers(batch: int, *, is_traced: bool) -> str:
    """SQL of the headers. The header `traceparent` of a source's record is passed on."""
    values = {"ottla.batch": f"'{batch}'", "ottla.sequence": "CAST(monotonically_increasing_id() AS STRING)"}
    own = ", ".join(_header(name, value) for name, value in values.items())
    if not is_traced:
        return f"array({own})"
    return f"IF({TRACEPARENT} IS NULL, array({own}), array({own}, {_header(TRACEPARENT_HEADER, TRACEPARENT)}))"


def _header(name: str, value: str) -> str:
    return f"struct('{name}' AS key, CAST({value} AS BINARY) AS value)"
