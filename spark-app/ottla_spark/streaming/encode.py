"""Encoding of rows as records: keys as text, values as JSON, or either of them in the schema
registry's framing.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla_operator.resources.formats import SinkFormat
from ottla_operator.resources.sinks import Sink
from ottla_spark.errors import PipelineError
from ottla_spark.record_schema import FORMS, RecordSchema, SchemaType, UnusableSchema, gather_schema, pack_files
from ottla_spark.schema_registry import RegisteredSchema, SchemaRegistry, UnknownSchema
from ottla_spark.streaming.avro_types import to_avro_schema
from ottla_spark.streaming.framed_records import column_type, encoded_row
from ottla_spark.streaming.json_schema_types import to_json_schema
from ottla_spark.streaming.protobuf_types import to_file_descriptor

KEY_SEPARATOR: Final = "|"

ColumnEncoder = Callable[[DataFrame], Column]
"""The key or the value of each row's record, as bytes."""

_NOT_IN_NAMES: Final = re.compile(r"\W", re.ASCII)


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """Encodes the rows of a topic sink. `key`: None if the sink has no key."""

    key: ColumnEncoder | None
    value: ColumnEncoder


def output_columns(rows: DataFrame) -> list[str]:
    """Columns that are written: those that do not start with `_`."""
    return [name for name in rows.columns if not name.startswith("_")]


def output_types(rows: DataFrame) -> dict[str, str]:
    """Spark's type of each column that is written, by its name."""
    written = output_columns(rows)
    return {name: type_ for name, type_ in rows.dtypes if name in written}


def record_encoder(sink: Sink, rows: DataFrame, registry: SchemaRegistry) -> RecordEncoder:
    """Encoder of a topic sink. Schemas are registered or looked up now. Raises PipelineError."""
    topic, name = sink.topic or "", record_name(sink.topic or "")
    try:
        key: ColumnEncoder | None = None
        if sink.key and sink.key_format is not None:
            subject = f"{topic}-key"
            key = _column_encoder(sink.key_format, subject, f"{name}_key", _types(rows, sink.key), registry)
        elif sink.key:
            key = text_key(sink.key)
        format_ = sink.format or SinkFormat(type="json")
        columns = _types(rows, output_columns(rows))
        return RecordEncoder(key, _column_encoder(format_, f"{topic}-value", name, columns, registry))
    except PipelineError as error:
        raise PipelineError(f"sink {sink.query_name}: {error}") from error


def check_format(sink: Sink, rows: DataFrame) -> None:
    """Raises PipelineError if a schema that the sink would register cannot have the rows'
    columns.
    """
    formats = ((sink.format, output_columns(rows)), (sink.key_format, sink.key))
    for format_, names in formats:
        if format_ is not None and format_.registers:
            try:
                schema_of_columns(format_.type, _types(rows, names), "row")
            except PipelineError as error:
                raise PipelineError(f"sink {sink.query_name}: {error}") from error


def text_key(names: Sequence[str]) -> ColumnEncoder:
    """The columns' values as text, joined by `|`."""
    return lambda rows: F.concat_ws(KEY_SEPARATOR, *[_text(rows, it) for it in names]).cast("binary")


def _json(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*_columns(names)), {"ignoreNullFields": "false"}).cast("binary")


def _text(rows: DataFrame, name: str) -> Column:
    column = F.col(f"`{name}`")
    if dict(rows.dtypes)[name].startswith("timestamp"):
        return F.date_format(column, "yyyy-MM-dd'T'HH:mm:ssXXX")
    return F.coalesce(column.cast("string"), F.lit(""))


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in names]


def _types(rows: DataFrame, names: Sequence[str]) -> StructType:
    return StructType([rows.schema[name] for name in names])


def _column_encoder(
    format_: SinkFormat, subject: str, name: str, columns: StructType, registry: SchemaRegistry
) -> ColumnEncoder:
    """Encoder of a row's columns. `subject`: used unless the format names one. `name`: name of the
    record, if its schema is registered."""
    if not format_.is_framed:
        return lambda rows: _json(columns.names)
    subject, type_ = format_.subject or subject, format_.type
    if format_.registers:
        schema, schema_id = _register(type_, subject, columns, name, registry)
    else:
        schema, schema_id = _latest(type_, subject, format_.message or "", registry)
    try:
        if len(columns) == 1 and not isinstance(column_type(schema), StructType):
            row, row_type = _columns(columns.names)[0], columns[0].dataType
        else:
            row, row_type = F.struct(*_columns(columns.names)), columns
        value = encoded_row(row, schema, schema_id, row_type)
    except PipelineError as error:
        raise PipelineError(f"the subject {subject}: {error}") from error
    return lambda rows: value


def _register(
    type_: SchemaType, subject: str, columns: StructType, name: str, registry: SchemaRegistry
) -> tuple[RecordSchema, int]:
    previous = _latest_file(subject, registry) if type_ == "protobuf" else None
    schema, text = schema_of_columns(type_, columns, name, previous)
    return schema, registry.register(subject, text, type_.upper())


def schema_of_columns(
    type_: SchemaType, columns: StructType, name: str, previous: FileDescriptorProto | None = None
) -> tuple[RecordSchema, str]:
    """Schema that records with these columns are encoded with, and its text for the registry.
    `previous`: the latest Protobuf schema, whose numbers of fields are kept. Raises PipelineError.
    """
    if type_ == "protobuf":
        file = to_file_descriptor(columns, name, previous)
        return RecordSchema(type_, pack_files(file)), base64.b64encode(file.SerializeToString()).decode()
    schema = to_avro_schema(columns, name) if type_ == "avro" else to_json_schema(columns, name)
    text = json.dumps(schema)
    return RecordSchema(type_, text), text


def _latest_file(subject: str, registry: SchemaRegistry) -> FileDescriptorProto | None:
    try:
        found = registry.schema_of_version(subject, "latest", FORMS["protobuf"])
    except UnknownSchema:
        return None
    # The registry refuses a schema of another type, and says why.
    return FileDescriptorProto.FromString(base64.b64decode(found.text)) if found.type == "PROTOBUF" else None


def _latest(type_: SchemaType, subject: str, message: str, registry: SchemaRegistry) -> tuple[RecordSchema, int]:
    try:
        found: RegisteredSchema = registry.schema_of_version(subject, "latest", FORMS[type_])
        return gather_schema(registry, found, type_, message), found.id
    except UnknownSchema as error:
        raise PipelineError(f"the subject {subject} has no schema, and register is false") from error
    except UnusableSchema as error:
        raise PipelineError(f"the subject {subject}: {error}") from error


def record_name(topic: str) -> str:
    """A name for the topic's Avro record or Protobuf message."""
    name = _NOT_IN_NAMES.sub("_", topic)
    return f"_{name}" if name[0].isdigit() else name
