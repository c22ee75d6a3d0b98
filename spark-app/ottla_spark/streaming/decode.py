"""Decoding of raw rows into the source's columns.

- json: the schema is Spark DDL. Fields that are not in the schema are ignored, missing fields are
  null. A value of another type, text that is not one JSON object, and a missing NOT NULL column are
  decode errors.
- avro, protobuf, and json with a schema of the registry: see `framed_records`.
- raw: the columns `key` and `value`, as bytes. Every record decodes.

If the source has `key`, the column with this name is the key: as text, or as the source's keyFormat
decodes it. A record is a row only if both its value and its key decode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import StructField, StructType

from ottla_operator.resources.formats import Format
from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import MissingDependency, PipelineError, describe_error, mark_message
from ottla_spark.streaming.framed_records import decoded_key, decoded_value
from ottla_spark.streaming.source import ORIGIN_COLUMNS

DECODE_ERROR: Final = "_decode_error"
"""Column with the reason why a row did not decode; null if it did."""
_KEY_ERROR: Final = "_key_error"
PARSED: Final = "_parsed"
"""Column with the struct that JSON of a value was parsed to."""
_PARSED_KEY: Final = "_parsed_key"
_BLANK: Final = r"^[ \t\n\r]*\z"
"""Matches text that is empty or has nothing but JSON's white space."""


def decode_rows(raw: DataFrame, pipeline: PipelineDefinition, name: str, unused: Collection[str] = ()) -> DataFrame:
    """Adds `_decode_error` and the columns of the source `name` to raw rows. Raises PipelineError
    for an invalid schema. `unused`: columns of JSON that are null instead of parsed, see
    `used_columns`.
    """
    source = pipeline.spec.sources[name]
    rows = _decode_values(raw, pipeline, name, unused)
    if source.key is None:
        return rows
    if source.key_format is None:
        return rows.withColumn(source.key, F.col("_key").cast("string"))
    if source.key_format.type == "raw":
        return rows.withColumn(source.key, F.col("_key"))
    rows = _decode_keys(rows, source.key, source.key_format, pipeline, name)
    return rows.withColumn(DECODE_ERROR, F.coalesce(DECODE_ERROR, _KEY_ERROR)).drop(_KEY_ERROR)


def _decode_values(raw: DataFrame, pipeline: PipelineDefinition, name: str, unused: Collection[str]) -> DataFrame:
    format_, where = pipeline.spec.sources[name].format, f"spec.sources.{name}.format"
    if format_.type == "raw":
        rows = raw.select("*", F.col("_key").alias("key"), F.col("_value").alias("value"))
        return rows.withColumn(DECODE_ERROR, F.lit(None).cast("string"))
    if format_.is_framed:
        with field_errors(where):
            columns = decoded_value(F.col("_value"), pipeline.readers[name], pipeline.registry, DECODE_ERROR)
        return raw.select("*", F.inline(F.array(columns)))
    schema = parse_schema(format_, where)
    needed = StructType([it for it in schema if it.name not in unused])
    error = partial(_json_error, "value", F.when(F.col("_value").isNull(), "the record has no value"), schema)
    rows = _parsed_once(raw, name, (PARSED, _parsed_json("_value", needed)), (DECODE_ERROR, error))
    decoded = [
        (F.lit(None).cast(it.dataType) if it.name in unused else F.col(PARSED)[it.name]).alias(it.name) for it in schema
    ]
    return rows.select(*raw.columns, *decoded, DECODE_ERROR)


def _parsed_once(
    rows: DataFrame, name: str, parsed: tuple[str, Column], error: tuple[str, Callable[[Column], Column]]
) -> DataFrame:
    """Adds a column with what JSON was parsed to, and one with the reason why it did not decode.

    A filter on the second column must not parse the JSON again. The optimizer moves no filter below
    a generator, nor below a stream's observed metrics, and those take less time than a generator.
    Both columns of a stream are made in one projection, which parses once and copies only what the
    nodes above it need.
    """
    (column, json), (error_column, make_error) = parsed, error
    if not rows.isStreaming:
        rows = rows.select("*", F.explode(F.array(json)).alias(column))
        return rows.withColumn(error_column, make_error(F.col(column)))
    undecoded = F.count(error_column).alias("undecoded")
    rows = rows.withColumns({column: json, error_column: make_error(json)})
    return rows.observe(f"{column.replace('_', '')}_{name}", undecoded)


def _decode_keys(rows: DataFrame, column: str, format_: Format, pipeline: PipelineDefinition, name: str) -> DataFrame:
    """Adds the column with the key and `_key_error`."""
    where = f"spec.sources.{name}.keyFormat"
    if format_.is_framed:
        with field_errors(where):
            key = decoded_key(F.col("_key"), pipeline.key_readers[name], pipeline.registry, _PARSED_KEY, _KEY_ERROR)
        # The value may have a column of this name too, which the key replaces.
        return rows.select("*", F.inline(F.array(key))).withColumn(column, F.col(_PARSED_KEY)).drop(_PARSED_KEY)
    schema = parse_schema(format_, where)
    no_key = F.when(F.col("_key").isNull(), F.lit(None).cast("string"))
    error = partial(_json_error, "key", no_key, schema)
    rows = _parsed_once(rows, name, (_PARSED_KEY, _parsed_json("_key", schema)), (_KEY_ERROR, error))
    present = F.struct(*[F.col(_PARSED_KEY)[it].alias(it) for it in schema.names])
    return rows.withColumn(column, F.when(F.col("_key").isNotNull(), present)).drop(_PARSED_KEY)


def _parsed_json(column: str, schema: StructType) -> Column:
    """Struct of the schema's columns, all of them nullable. Null for text that does not match.
    Spark could keep such text in a column of the struct, but would then look up each column of each
    record by its name.
    """
    nullable = StructType([StructField(it.name, it.dataType, True) for it in schema])
    return null_on_error(F.from_json(F.col(column).cast("string"), nullable, {"mode": "FAILFAST"}))


def null_on_error(column: Column) -> Column:
    """The column, null where its value cannot be computed. Errors of the machine, such as too
    little memory, remain errors. Spark's functions `try_…` are made of the same expression, which
    no function of PySpark makes.
    """
    sql = cast(Any, SparkContext._jvm).org.apache.spark.sql
    expression = sql.classic.ExpressionUtils.expression(cast(Any, column)._jc)
    return JvmColumn(sql.classic.ExpressionUtils.column(sql.catalyst.expressions.TryEval(expression)))


@contextmanager
def field_errors(where: str) -> Iterator[None]:
    """Raises errors of PySpark and of the pipeline as PipelineError that names the field. A
    MissingDependency stays one, and names the field too.
    """
    try:
        yield
    except MissingDependency as error:
        raise MissingDependency(f"{where}: {error}") from error
    except (PySparkException, PipelineError) as error:
        raise PipelineError(f"{where}: {describe_error(error)}") from error


def parse_schema(format_: Format, where: str) -> StructType:
    """Parses Spark DDL. `where`: the field of the format. Raises PipelineError."""
    with field_errors(f"{where}.schema"):
        schema = StructType.fromDDL(format_.schema or "")
    if not isinstance(schema, StructType):
        raise PipelineError(f"{where}.schema: {format_.schema} is a type, not a list of columns")
    return schema


def _json_error(part: str, missing: Column, schema: StructType, parsed: Column) -> Column:
    """The reason why JSON did not decode, or null. `part`: key or value. `missing`: the error of a
    record that lacks the part. `parsed`: null if the part is missing, has nothing but white space,
    or does not match. The first condition, which is always evaluated, has `parsed`, so that Spark
    evaluates `parsed` once.
    """
    is_blank = F.col(f"_{part}").cast("string").rlike(_BLANK)
    missing = missing.when(is_blank, f"the {part} is empty")
    error = F.when(parsed.isNull(), missing.otherwise(f"the {part} is not JSON that matches the schema"))
    prefix = "" if part == "value" else f"{part}'s "
    for field in schema:
        if not field.nullable:
            error = error.when(parsed[field.name].isNull(), f"the {prefix}column {field.name} is missing or null")
    return error


def drop_undecoded(rows: DataFrame) -> DataFrame:
    """Rows that decoded, with the source's columns and the origin columns."""
    return rows.where(f"{DECODE_ERROR} IS NULL").drop(DECODE_ERROR, "_key", "_value")


def fail_on_undecoded(rows: DataFrame) -> DataFrame:
    """Like `drop_undecoded`, but a row that does not decode fails the batch with an error that
    names the record.
    """
    return rows.where(decoded_or_fail()).drop(DECODE_ERROR, "_key", "_value")


def decoded_or_fail() -> Column:
    """True for a row that decoded. Others fail the batch."""
    topic, partition, offset, _ = (F.col(name) for name in ORIGIN_COLUMNS)
    before, after = mark_message("\0").split("\0")
    message = F.concat(
        F.lit(before + "topic "), topic, F.lit(", partition "), partition.cast("string"),
        F.lit(", offset "), offset.cast("string"), F.lit(": "), F.col(DECODE_ERROR),
        F.lit("; with spec.deadLetter, such records are written to the dead-letter topic" + after),
    )  # fmt: skip
    return F.when(F.col(DECODE_ERROR).isNull(), F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))
