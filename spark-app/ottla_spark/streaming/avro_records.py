"""Decoding and encoding of Avro records in the schema registry's framing, in executors.

A record is decoded with the schema that it was written with, which its id names, and projected to
the reader's schema by Avro's rules: fields that the reader lacks are skipped, and missing ones have
the reader's defaults. Each process asks the registry for a schema once.
"""

from __future__ import annotations

import io
import json
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import DecimalException
from functools import partial
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError
from ottla_spark.schema_registry import FRAME_BYTES, SchemaRegistry, UnknownSchema, frame, framed_schema_id
from ottla_spark.streaming.avro_types import to_struct_type

_RETRY_UNKNOWN_S: Final = 10.0
"""A schema that the registry did not have is asked for again after this time."""
_UNDECODABLE: Final = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, struct.error, DecimalException,
    SchemaParseException, UnknownType, fastavro.read.SchemaResolutionError,
)  # fmt: skip


@dataclass(slots=True)
class WritersSchemas:
    """Writers' schemas by their id; for an unknown id, the time at which to ask again."""

    registry: SchemaRegistry
    parsed: dict[int, Any] = field(default_factory=dict)
    ask_again_at: dict[int, float] = field(default_factory=dict)

    def get(self, schema_id: int) -> Any | None:
        """None if the registry does not have it. Raises PipelineError if the registry does not
        respond, which fails the batch: the record may be sound.
        """
        found = self.parsed.get(schema_id)
        if found is None and time.monotonic() >= self.ask_again_at.get(schema_id, 0.0):
            try:
                text = self.registry.schema_by_id(schema_id)
            except UnknownSchema:
                self.ask_again_at[schema_id] = time.monotonic() + _RETRY_UNKNOWN_S
                return None
            found = self.parsed[schema_id] = fastavro.parse_schema(json.loads(text))
        return found


_schemas: dict[SchemaRegistry, WritersSchemas] = {}
"""In each executor's process, which decodes batch after batch."""


def decoded(value: Column, reader: str, registry: SchemaRegistry, error: str) -> Column:
    """Struct of the columns of the reader's schema, and of the column `error`: why the value did
    not decode, or null. Raises PipelineError if Spark has no types for the schema.
    """
    columns = to_struct_type(reader)
    optional = [T.StructField(it.name, it.dataType, True) for it in columns]
    result = T.StructType([*optional, T.StructField(error, T.StringType(), True)])
    return F.udf(partial(decode_value, registry, reader, columns.names, {}), result)(value)


def decode_value(
    registry: SchemaRegistry, reader: str, names: Sequence[str], cache: dict[str, Any], value: bytes | bytearray | None
) -> tuple[Any, ...]:
    """The reader's fields and the error. `cache`: filled with the parsed reader's schema."""
    record, error = _decode(registry, reader, cache, value)
    return (*map(record.get, names), error)


def _decode(
    registry: SchemaRegistry, reader: str, cache: dict[str, Any], value: bytes | bytearray | None
) -> tuple[dict[str, Any], str | None]:
    if value is None:
        return {}, "the record has no value"
    schema_id = framed_schema_id(value)
    if schema_id is None:
        return {}, "the value does not begin with the id of a schema"
    schemas = _schemas.setdefault(registry, WritersSchemas(registry))
    try:
        writer = schemas.get(schema_id)
        if writer is None:
            return {}, f"the schema registry has no schema {schema_id}"
        if not cache:
            cache["schema"] = fastavro.parse_schema(json.loads(reader))
        stream = io.BytesIO(value)
        stream.seek(FRAME_BYTES)
        record: Any = fastavro.schemaless_reader(stream, writer, cache["schema"])
    except _UNDECODABLE as error:
        return {}, f"the value is not a record of schema {schema_id} that the reader's schema can read: {error}"
    if stream.tell() != len(value):
        return {}, f"the value has {len(value) - stream.tell()} bytes after the record of schema {schema_id}"
    return record, None


def encoded(row: Column, schema: str, schema_id: int) -> Column:
    """The row (a struct) as a framed record."""
    return F.udf(partial(encode_row, schema, schema_id, {}), T.BinaryType())(row)


def encode_row(schema: str, schema_id: int, cache: dict[str, Any], row: T.Row) -> bytes:
    """`cache`: filled with the parsed schema. Raises PipelineError if the row does not fit it."""
    if not cache:
        cache["schema"] = fastavro.parse_schema(json.loads(schema))
    stream = io.BytesIO()
    stream.write(frame(schema_id))
    try:
        fastavro.schemaless_writer(stream, cache["schema"], _plain(row))
    except _UNDECODABLE as error:
        raise PipelineError(f"a row does not fit the Avro schema {schema_id}: {error}") from error
    return stream.getvalue()


def _plain(value: Any) -> Any:
    """Rows as dicts, and timestamps, which Spark hands over in local time, in UTC."""
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
