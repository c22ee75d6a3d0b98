"""Avro records in the schema registry's framing.

A record is decoded with the schema that it was written with, which its id names, and projected to
the reader's schema by Avro's rules: fields that the reader lacks are skipped, and missing ones have
the reader's defaults.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import DecimalException
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as T

from ottla_spark.record_schema import RecordSchema, UnusableSchema
from ottla_spark.schema_registry import FRAME_BYTES, frame_header
from ottla_spark.streaming.avro_types import contains_itself, to_spark_type

_UNDECODABLE: Final = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, struct.error, DecimalException,
    SchemaParseException, UnknownType, fastavro.read.SchemaResolutionError,
)  # fmt: skip


def column_type(schema: RecordSchema) -> T.DataType:
    """Spark's type of the schema's values. Raises PipelineError."""
    return to_spark_type(schema.text)


def open_decoder(writer: RecordSchema, reader: RecordSchema, schema_id: int) -> Callable[[bytes | bytearray], Any]:
    """Decoder of records that have the id `schema_id` of the writer's schema; it raises ValueError
    as `framed_records.DecodeRecord` does. `open_decoder` itself raises UnusableSchema if the schema
    is not an Avro schema or contains itself.
    """
    try:
        written, wanted = (fastavro.parse_schema(json.loads(it.text)) for it in (writer, reader))
    except _UNDECODABLE as error:
        raise UnusableSchema(f"the schema {schema_id} is not an Avro schema: {error}") from error

    if contains_itself(written):
        # A value that is nested deeply would crash the process, in fastavro.
        raise UnusableSchema(f"the Avro schema {schema_id} contains itself, which this reader does not support")

    def decode(value: bytes | bytearray) -> Any:
        stream = io.BytesIO(value)
        stream.seek(FRAME_BYTES)
        try:
            record: Any = fastavro.schemaless_reader(stream, written, wanted)
        except _UNDECODABLE as error:
            raise ValueError(
                f"is not a record of schema {schema_id} that the reader's schema can read: {error}"
            ) from None
        if stream.tell() != len(value):
            raise ValueError(f"has {len(value) - stream.tell()} bytes after the record of schema {schema_id}")
        return record

    return decode


def open_encoder(schema: RecordSchema, schema_id: int, columns: T.DataType) -> Callable[[Any], bytes]:
    """Function that encodes a row as a record with the id `schema_id`, and raises ValueError.
    `columns`: type of the rows. Raises PipelineError. Raises UnusableSchema if a column has no
    field in the schema, or if only one of `columns` and the schema's type is a struct.
    """
    wanted = to_spark_type(schema.text)
    if isinstance(columns, T.StructType) and isinstance(wanted, T.StructType):
        if unknown := [name for name in columns.names if name not in wanted.names]:
            raise UnusableSchema(f"the schema has no field {', '.join(unknown)}; it has {', '.join(wanted.names)}")
    elif isinstance(columns, T.StructType) or isinstance(wanted, T.StructType):
        raise UnusableSchema(f"the schema is {wanted.simpleString()}, and the row is {columns.simpleString()}")
    parsed, prefix = fastavro.parse_schema(json.loads(schema.text)), frame_header(schema_id)

    def encode(row: Any) -> bytes:
        stream = io.BytesIO()
        stream.write(prefix)
        try:
            fastavro.schemaless_writer(stream, parsed, _plain(row))
        except _UNDECODABLE as error:
            raise ValueError(str(error)) from None
        return stream.getvalue()

    return encode


def _plain(value: Any) -> Any:
    """Converts rows to dicts, and timestamps to UTC: Spark passes them in local time."""
    match value:
        case T.Row():
            return {name: _plain(item) for name, item in zip(value.__fields__, value, strict=True)}
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case datetime():
            return value.astimezone(UTC)
    return value
