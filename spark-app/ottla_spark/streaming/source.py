"""Sources: topics as raw rows, through Spark's Kafka connector.

A raw row has `_key` and `_value` (bytes), `_topic`, `_partition`, `_offset` and `_timestamp` (of
the record). In a pipeline that is traced, rows of streams have `_traceparent` as well.

- A *stream* reads each record once, starting at the checkpoint.
- A *table* is the latest record of each key; a record without a value deletes the row. See
  `reference_table`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla_operator.resources.sources import Source
from ottla_spark.streaming.traced_records import TRACEPARENT_OF_HEADERS

ORIGIN_COLUMNS: Final = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns of every source that say where a row came from. Sinks omit columns that start with
`_`.
"""

RAW_SCHEMA: Final = "_key BINARY, _value BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
_RAW_COLUMNS: Final = (
    "key AS _key",
    "value AS _value",
    "topic AS _topic",
    "partition AS _partition",
    "offset AS _offset",
    "timestamp AS _timestamp",
)


def read_stream(spark: SparkSession, source: Source, kafka: Mapping[str, str], *, is_traced: bool = False) -> DataFrame:
    """The topic's records as a stream. `kafka`: client properties, including bootstrap.servers."""
    reader = spark.readStream.format("kafka").options(**stream_options(source, kafka))
    if is_traced:
        return reader.option("includeHeaders", "true").load().selectExpr(*_RAW_COLUMNS, TRACEPARENT_OF_HEADERS)
    return reader.load().selectExpr(*_RAW_COLUMNS)


def subscribed_topics(rows: DataFrame) -> frozenset[str]:
    """Topics of the streams that the rows are derived from, by Spark's plan."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    streams = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
    return frozenset(str(leaf.extraOptions().get("subscribe")) for leaf in streams)


def stream_options(source: Source, kafka: Mapping[str, str]) -> dict[str, str]:
    """The connector's options for a stream."""
    options = _client_options(kafka) | {
        "subscribe": source.topic,
        "failOnDataLoss": "true" if source.on_data_loss == "fail" else "false",
        "kafka.isolation.level": source.isolation,
    }
    if source.starting_time_ms is None:
        options["startingOffsets"] = source.starting_offsets
    else:
        options["startingTimestamp"] = str(source.starting_time_ms)
        options["startingOffsetsByTimestampStrategy"] = "latest"  # of partitions without a record since then
    if source.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    return options


def _client_options(kafka: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in kafka.items()}


def read_range(
    spark: SparkSession, source: Source, kafka: Mapping[str, str], starts: Mapping[int, int], ends: Mapping[int, int]
) -> DataFrame:
    """Records between two offsets of each partition, the end exclusive. Records that were deleted
    are skipped.
    """
    reader = spark.read.format("kafka").options(**_client_options(kafka))
    return (
        reader.option("subscribe", source.topic)
        .option("startingOffsets", _as_json(source.topic, starts))
        .option("endingOffsets", _as_json(source.topic, ends))
        .option("failOnDataLoss", "false")
        .option("kafka.isolation.level", source.isolation)
        .load()
        .selectExpr(*_RAW_COLUMNS)
    )


def read_topic(spark: SparkSession, topic: str, kafka: Mapping[str, str]) -> DataFrame:
    """The records that the topic has now, without those of open and aborted transactions."""
    reader = spark.read.format("kafka").options(**_client_options(kafka))
    reader = reader.option("subscribe", topic).option("failOnDataLoss", "false")
    return reader.option("kafka.isolation.level", "read_committed").load().selectExpr(*_RAW_COLUMNS)


def _as_json(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


def latest_record_by_key(raw: DataFrame) -> DataFrame:
    """The latest record of each key, also if it has no value. Records without a key are
    ignored.
    """
    last = (
        raw.where("_key IS NOT NULL")
        .groupBy("_key")
        .agg(F.max_by(F.struct(*raw.columns), F.col("_offset")).alias("_last"))
    )
    return last.select("_last.*")


def table_rows(raw: DataFrame) -> DataFrame:
    """Raw rows of a table: the latest record of each key, unless that record has no value."""
    return latest_record_by_key(raw).where("_value IS NOT NULL")
