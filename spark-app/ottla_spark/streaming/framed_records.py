"""Decodes records in the schema registry's framing to columns, and encodes rows as such records, in
executors. Avro, Protobuf and JSON have modules of their own.

A process requests each writer's schema from the registry once, or again after ten seconds if the
registry does not have it or records cannot be read with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError
from ottla_spark.record_schema import FORMS, RecordSchema, UnusableSchema, gather_schema
from ottla_spark.schema_registry import SchemaRegistry, UnknownSchema, framed_schema_id
from ottla_spark.streaming import avro_records, json_schema_records, protobuf_records

DecodeRecord = Callable[[bytes | bytearray], Any]
"""The value of a framed record, as Spark takes it; of a record with columns, a tuple or a dict.
Raises ValueError with the reason, a sentence without its subject: "does not begin with …".
"""
EncodeRow = Callable[[Any], bytes]
"""A row as a framed record. Raises ValueError with the reason."""

_RETRY_UNKNOWN_S: Final = 10.0
"""Time after which a schema that the registry did not have, or with which records could not be
read, is requested again."""


@dataclass(slots=True)
class Decoder:
    """Decodes records of any writer's schema; without a registry, as in test cases, all records
    have the reader's. `refused`: by schema id, why records of the schema cannot be read, and the
    monotonic time at which to ask the registry again.
    """

    registry: SchemaRegistry
    reader: RecordSchema
    decoders: dict[int, DecodeRecord] = field(default_factory=dict)
    refused: dict[int, tuple[str, float]] = field(default_factory=dict)

    def decode(self, value: bytes | bytearray) -> Any:
        """Raises ValueError as DecodeRecord does; PipelineError if the registry does not respond,
        which fails the batch, because the record may be valid.
        """
        schema_id = framed_schema_id(value)
        if schema_id is None:
            raise ValueError("does not begin with the id of a schema")
        if (read := self.decoders.get(schema_id)) is None:
            read = self._open(schema_id)
        try:
            return read(value)
        except RecursionError:
            raise ValueError(f"of schema {schema_id} is nested too deeply") from None

    def _open(self, schema_id: int) -> DecodeRecord:
        reason, ask_again_at = self.refused.get(schema_id, ("", 0.0))
        if time.monotonic() < ask_again_at:
            raise ValueError(reason)
        try:
            type_ = self.reader.type
            writer = self.reader
            if self.registry.url:
                found = self.registry.schema_by_id(schema_id, FORMS[type_])
                writer = gather_schema(self.registry, found, type_)
            self.decoders[schema_id] = _OPEN_DECODER[type_](writer, self.reader, schema_id)
        except (UnknownSchema, UnusableSchema) as error:
            unknown = f"has the id {schema_id}, and the schema registry has no schema {schema_id}"
            reason = unknown if isinstance(error, UnknownSchema) else f"cannot be read: {error}"
            self.refused[schema_id] = reason, time.monotonic() + _RETRY_UNKNOWN_S
            raise ValueError(reason) from None
        return self.decoders[schema_id]


_OPEN_DECODER: Final[dict[str, Callable[[RecordSchema, RecordSchema, int], DecodeRecord]]] = {
    "avro": avro_records.open_decoder,
    "protobuf": protobuf_records.open_decoder,
    "json": json_schema_records.open_decoder,
}
_COLUMN_TYPE: Final[dict[str, Callable[[RecordSchema], T.DataType]]] = {
    "avro": avro_records.column_type,
    "protobuf": protobuf_records.column_type,
    "json": json_schema_records.column_type,
}
_OPEN_ENCODER: Final[dict[str, Callable[[RecordSchema, int, T.DataType], EncodeRow]]] = {
    "avro": avro_records.open_encoder,
    "protobuf": protobuf_records.open_encoder,
    "json": json_schema_records.open_encoder,
}

_decoders: dict[tuple[SchemaRegistry, RecordSchema], Decoder] = {}
_encoders: dict[tuple[RecordSchema, int, str], EncodeRow] = {}
"""The decoders and encoders of this executor process, which works on batch after batch."""


def column_type(schema: RecordSchema) -> T.DataType:
    """Type of the schema's records: a struct, or for an Avro or JSON schema of a single value, the
    type of that value. Raises PipelineError if Spark has no such type.
    """
    try:
        return _COLUMN_TYPE[schema.type](schema)
    except UnusableSchema as error:
        raise PipelineError(str(error)) from error


def value_columns(schema: RecordSchema) -> T.StructType:
    """The columns of the schema's records. Raises PipelineError for a schema of a single value."""
    columns = column_type(schema)
    if not isinstance(columns, T.StructType):
        raise PipelineError(f"the schema is {columns.simpleString()}, not a record: it has no columns")
    return columns


def decoded_value(value: Column, reader: RecordSchema, registry: SchemaRegistry, error: str) -> Column:
    """Struct of the columns of the reader's schema, and of the column `error`: why the value did
    not decode, or null. Raises PipelineError if Spark has no types for the schema.
    """
    columns = value_columns(reader)
    optional = [T.StructField(it.name, it.dataType, True) for it in columns]
    result = T.StructType([*optional, T.StructField(error, T.StringType(), True)])
    return F.udf(partial(decode_value, registry, reader, columns.names), result)(value)


def decode_value(
    registry: SchemaRegistry, reader: RecordSchema, names: list[str], value: bytes | bytearray | None
) -> tuple[Any, ...]:
    """The values of the columns `names`, and the error. Runs in executors."""
    if value is None:
        return (*[None] * len(names), "the record has no value")
    try:
        found = _decoder(registry, reader).decode(value)
    except ValueError as error:
        return (*[None] * len(names), f"the value {error}")
    return (*(map(found.get, names) if isinstance(found, dict) else found), None)


def decoded_key(key: Column, reader: RecordSchema, registry: SchemaRegistry, name: str, error: str) -> Column:
    """Struct of one column with the key, and of the column `error`. Raises PipelineError."""
    columns = [T.StructField(name, column_type(reader), True), T.StructField(error, T.StringType(), True)]
    return F.udf(partial(decode_key, registry, reader), T.StructType(columns))(key)


def decode_key(registry: SchemaRegistry, reader: RecordSchema, key: bytes | bytearray | None) -> tuple[Any, str | None]:
    """The key and the error. A record without a key has no error. Runs in executors."""
    if key is None:
        return None, None
    try:
        return _decoder(registry, reader).decode(key), None
    except ValueError as error:
        return None, f"the key {error}"


def _decoder(registry: SchemaRegistry, reader: RecordSchema) -> Decoder:
    if (found := _decoders.get((registry, reader))) is None:
        found = _decoders[registry, reader] = Decoder(registry, reader)
    return found


def encoded_row(row: Column, schema: RecordSchema, schema_id: int, columns: T.DataType) -> Column:
    """The row (a struct with these columns, or a value without columns) as a framed record. Raises
    PipelineError if the schema cannot have the columns.
    """
    _open_encoder(schema, schema_id, columns)
    return F.udf(partial(encode_row, schema, schema_id, columns.json()), T.BinaryType())(row)


def encode_row(schema: RecordSchema, schema_id: int, columns: str, row: Any) -> bytes:
    """The row as a framed record. `columns`: type of the row, as JSON. Raises PipelineError if the
    row does not fit the schema. Runs in executors.
    """
    if (encode := _encoders.get((schema, schema_id, columns))) is None:
        type_ = T._parse_datatype_json_string(columns)
        encode = _encoders[schema, schema_id, columns] = _open_encoder(schema, schema_id, type_)
    try:
        return encode(row)
    except ValueError as error:
        raise PipelineError(f"a row does not fit the schema {schema_id}: {error}") from error


def _open_encoder(schema: RecordSchema, schema_id: int, columns: T.DataType) -> EncodeRow:
    try:
        return _OPEN_ENCODER[schema.type](schema, schema_id, columns)
    except UnusableSchema as error:
        raise PipelineError(str(error)) from error
