"""Topics as raw rows, through Spark's own Kafka connector.

Every raw row has `_key`, `_value` (bytes), `_topic`, `_partition`, `_offset` and `_timestamp` (when the record was
written).

- A *stream* reads records once, from the checkpoint on.
- A *table* is the newest record of each key. The connector reads the whole topic again whenever a batch runs, after
  the batch's own records were chosen; so a row that was written before a stream's record is seen by it, and a change
  is seen by the next batch. That is right for reference data of up to some hundred thousand rows. A record without a
  value deletes its key's row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla_spark.spec import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = (
    "key AS _key",
    "value AS _value",
    "topic AS _topic",
    "partition AS _partition",
    "offset AS _offset",
    "timestamp AS _timestamp",
)


def stream(spark: SparkSession, source: Source, kafka: Mapping[str, str]) -> DataFrame:
    """The topic's records, as they come. `kafka`: the client's settings, bootstrap.servers among them."""
    reader = spark.readStream.format("kafka").options(**options(source, kafka))
    return reader.load().selectExpr(*RAW)


def read_by(rows: DataFrame) -> frozenset[str]:
    """Topics of the streams that rows are made of, as Spark's own plan knows them."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    streams = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
    return frozenset(str(leaf.extraOptions().get("subscribe")) for leaf in streams)


def options(source: Source, kafka: Mapping[str, str]) -> dict[str, str]:
    """The connector's options for a stream."""
    chosen = {f"kafka.{name}": value for name, value in kafka.items()}
    chosen |= {
        "subscribe": source.topic,
        "startingOffsets": source.starting_offsets,
        "failOnDataLoss": "true" if source.on_data_loss == "fail" else "false",
        "kafka.isolation.level": source.isolation,
    }
    if source.max_offsets_per_trigger is not None:
        chosen["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    return chosen


def table(spark: SparkSession, source: Source, kafka: Mapping[str, str]) -> DataFrame:
    """The newest record of each key, read anew by every batch."""
    reader = spark.read.format("kafka").options(**{f"kafka.{name}": value for name, value in kafka.items()})
    reader = reader.options(
        **{
            "subscribe": source.topic,
            "startingOffsets": "earliest",
            "endingOffsets": "latest",
            # Compaction leaves gaps between offsets: a table has no record that it must have seen.
            "failOnDataLoss": "false",
            "kafka.isolation.level": source.isolation,
        }
    )
    return newest(reader.load().selectExpr(*RAW))


def between(
    spark: SparkSession, source: Source, kafka: Mapping[str, str], starts: Mapping[int, int], ends: Mapping[int, int]
) -> DataFrame:
    """The topic's records from one offset of each partition up to, and without, another; those that are gone by now
    are left out."""
    reader = spark.read.format("kafka").options(**{f"kafka.{name}": value for name, value in kafka.items()})
    return (
        reader.option("subscribe", source.topic)
        .option("startingOffsets", _as_json(source.topic, starts))
        .option("endingOffsets", _as_json(source.topic, ends))
        .option("failOnDataLoss", "false")
        .option("kafka.isolation.level", source.isolation)
        .load()
        .selectExpr(*RAW)
    )


def _as_json(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


def newest(raw: DataFrame) -> DataFrame:
    """The newest row of each key; keys whose newest has no value, and rows without a key, are left out."""
    from pyspark.sql import functions as F

    last = (
        raw.where("_key IS NOT NULL")
        .groupBy("_key")
        .agg(F.max_by(F.struct(*raw.columns), F.col("_offset")).alias("_last"))
    )
    return last.select("_last.*").where("_value IS NOT NULL")
