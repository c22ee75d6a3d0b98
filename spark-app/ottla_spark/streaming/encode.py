"""Encoding of rows as the values of records: JSON, or Avro in the schema registry's framing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla_operator.resources.formats import SinkFormat
from ottla_operator.resources.sinks import Sink
from ottla_spark.errors import PipelineError
from ottla_spark.schema_registry import SchemaRegistry, UnknownSchema
from ottla_spark.streaming import avro_records
from ottla_spark.streaming.avro_types import to_avro_schema, to_struct_type

ValueEncoder = Callable[[DataFrame], Column]
"""The value of each row's record, as bytes."""

_NO_NAME: Final = re.compile(r"\W", re.ASCII)


def output_columns(rows: DataFrame) -> list[str]:
    """Columns that are written: those that do not start with `_`."""
    return [name for name in rows.columns if not name.startswith("_")]


def value_encoder(sink: Sink, rows: DataFrame, registry: SchemaRegistry) -> ValueEncoder:
    """Encoder of a topic sink. An Avro schema is registered or looked up now. Raises
    PipelineError.
    """
    if sink.format is None or sink.format.type == "json":
        return json_value
    topic = sink.topic or ""
    subject = sink.format.subject or f"{topic}-value"
    try:
        schema, schema_id = _avro_schema(sink.format, subject, topic, _written_columns(rows), registry)
    except PipelineError as error:
        raise PipelineError(f"sink {sink.query_name}: {error}") from error
    return lambda rows: avro_records.encoded(F.struct(*_columns(rows)), schema, schema_id)


def check_format(sink: Sink, rows: DataFrame) -> None:
    """Raises PipelineError if a registered schema cannot have the columns of the rows."""
    if sink.format is not None and sink.format.type == "avro" and sink.format.register:
        try:
            to_avro_schema(_written_columns(rows), "row")
        except PipelineError as error:
            raise PipelineError(f"sink {sink.query_name}: {error}") from error


def json_value(rows: DataFrame) -> Column:
    return F.to_json(F.struct(*_columns(rows)), {"ignoreNullFields": "false"}).cast("binary")


def _columns(rows: DataFrame) -> list[Column]:
    return [F.col(f"`{name}`") for name in output_columns(rows)]


def _written_columns(rows: DataFrame) -> StructType:
    return StructType([rows.schema[name] for name in output_columns(rows)])


def _avro_schema(
    format_: SinkFormat, subject: str, topic: str, columns: StructType, registry: SchemaRegistry
) -> tuple[str, int]:
    """Schema and id that rows are encoded with: that of the columns, or the subject's latest."""
    if format_.register:
        schema = json.dumps(to_avro_schema(columns, _record_name(topic)))
        return schema, registry.register(subject, schema)
    try:
        schema = registry.schema_of_version(subject, "latest")
        schema_id = registry.find_id(subject, schema)
    except UnknownSchema as error:
        raise PipelineError(f"the subject {subject} has no schema, and register is false") from error
    fields = to_struct_type(schema).names
    if unknown := [name for name in columns.names if name not in fields]:
        raise PipelineError(f"the schema of {subject} has no field {', '.join(unknown)}; it has {', '.join(fields)}")
    return schema, schema_id


def _record_name(topic: str) -> str:
    name = _NO_NAME.sub("_", topic)
    return f"_{name}" if name[0].isdigit() else name
