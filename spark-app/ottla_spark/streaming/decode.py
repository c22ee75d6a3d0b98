"""Decoding of raw rows into the source's columns.

- json: the schema is Spark DDL. Fields that are not in the schema are ignored, missing fields are
  null. A value of another type, text that is not one JSON object, and a missing NOT NULL column are
  decode errors.
- avro: see `avro_records`.
- raw: the columns `key` and `value`, as bytes. Every record decodes.
"""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla_operator.resources.pipeline import Source
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import PipelineError, describe_error, mark_message
from ottla_spark.streaming import avro_records
from ottla_spark.streaming.source import ORIGIN_COLUMNS

DECODE_ERROR: Final = "_decode_error"
"""Column with the reason why a row did not decode; null if it did."""
_CORRUPT_RECORD: Final = "_corrupt"


def decode_rows(raw: DataFrame, pipeline: PipelineDefinition, name: str) -> DataFrame:
    """Adds the columns of the source with this name and `_decode_error` to raw rows. Raises
    PipelineError for an invalid schema.
    """
    source = pipeline.spec.sources[name]
    if source.format.type == "raw":
        rows = raw.select("*", F.col("_key").alias("key"), F.col("_value").alias("value"))
        return rows.withColumn(DECODE_ERROR, F.lit(None).cast("string"))
    if source.format.type == "avro":
        rows = _decode_avro(raw, pipeline, name)
        return rows if source.key is None else rows.withColumn(source.key, F.col("_key").cast("string"))
    schema = parse_schema(source, name)
    nullable = schema.__class__([field.__class__(field.name, field.dataType, True) for field in schema])
    parsed = F.from_json(
        F.col("_value").cast("string"),
        nullable.add(_CORRUPT_RECORD, "string"),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT_RECORD},
    )
    # A generator, unlike a column, is evaluated once. The optimizer would evaluate a column again
    # in the filter on `_decode_error`, and prune the schema to the columns that are used, so that
    # errors in the others go unnoticed.
    rows = raw.select("*", F.inline(F.array(parsed)))
    if source.key is not None:
        rows = rows.withColumn(source.key, F.col("_key").cast("string"))
    return rows.withColumn(DECODE_ERROR, _decode_error(schema)).drop(_CORRUPT_RECORD)


def _decode_avro(raw: DataFrame, pipeline: PipelineDefinition, name: str) -> DataFrame:
    try:
        columns = avro_records.decoded(F.col("_value"), pipeline.readers[name], pipeline.registry, DECODE_ERROR)
    except PipelineError as error:
        raise PipelineError(f"spec.sources.{name}.format: {error}") from error
    return raw.select("*", F.inline(F.array(columns)))


def parse_schema(source: Source, name: str) -> StructType:
    """Parses the Spark DDL of a json source. Raises PipelineError."""
    try:
        schema = StructType.fromDDL(source.format.schema or "")
    except PySparkException as error:
        raise PipelineError(f"spec.sources.{name}.format.schema: {describe_error(error)}") from error
    if not isinstance(schema, StructType):
        raise PipelineError(
            f"spec.sources.{name}.format.schema: {source.format.schema} is a type, not a list of columns"
        )
    return schema


def _decode_error(schema: StructType) -> Column:
    error = (
        F.when(F.col("_value").isNull(), "the record has no value")
        .when(F.col(_CORRUPT_RECORD).isNotNull(), "the value is not JSON that matches the schema")
        .when(F.length(F.trim(F.col("_value").cast("string"))) == 0, "the value is empty")
    )
    for field in schema:
        if not field.nullable:
            error = error.when(F.col(f"`{field.name}`").isNull(), f"the column {field.name} is missing or null")
    return error


def drop_undecoded(rows: DataFrame) -> DataFrame:
    """Rows that decoded, with the source's columns and the origin columns."""
    return rows.where(f"{DECODE_ERROR} IS NULL").drop(DECODE_ERROR, "_key", "_value")


def fail_on_undecoded(rows: DataFrame) -> DataFrame:
    """Like `drop_undecoded`, but a row that does not decode fails the batch with an error that
    names the record.
    """
    topic, partition, offset, _ = (F.col(name) for name in ORIGIN_COLUMNS)
    before, after = mark_message("\0").split("\0")
    message = F.concat(
        F.lit(before + "topic "), topic, F.lit(", partition "), partition.cast("string"),
        F.lit(", offset "), offset.cast("string"), F.lit(": "), F.col(DECODE_ERROR),
        F.lit("; with spec.deadLetter, such records are written to the dead-letter topic" + after),
    )  # fmt: skip
    decoded = F.when(F.col(DECODE_ERROR).isNull(), F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))
    return rows.where(decoded).drop(DECODE_ERROR, "_key", "_value")
