"""Protobuf records in the schema registry's framing: after the id of the schema, the message
indexes (see `protobuf_schemas`), and the message.
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.json_format import Error as JsonError
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as T

from ottla_spark.protobuf_schemas import (
    encode_message_indexes,
    find_message,
    message_at,
    message_indexes,
    parse_file_descriptor,
    read_message_indexes,
)
from ottla_spark.record_schema import RecordSchema, UnusableSchema
from ottla_spark.schema_registry import FRAME_BYTES, frame_header
from ottla_spark.streaming.protobuf_projection import message_projection
from ottla_spark.streaming.protobuf_rows import message_converter
from ottla_spark.streaming.protobuf_types import to_struct_type


def column_type(schema: RecordSchema) -> T.DataType:
    """The columns of the schema's message. Raises UnusableSchema and PipelineError."""
    return to_struct_type(_message_of(schema))


def open_decoder(writer: RecordSchema, reader: RecordSchema, schema_id: int) -> Callable[[bytes | bytearray], Any]:
    """Decoder of records that have the id `schema_id` of the writer's schema; it raises ValueError
    as `framed_records.DecodeRecord` does. `open_decoder` itself raises UnusableSchema.
    """
    file, wanted = parse_file_descriptor(writer.text), _message_of(reader)
    decoders: dict[tuple[int, ...], Callable[[bytes], Any]] = {}

    def decode(value: bytes | bytearray) -> Any:
        try:
            indexes, at = read_message_indexes(value, FRAME_BYTES)
        except IndexError:
            raise ValueError(f"ends before the message of schema {schema_id}") from None
        if (read := decoders.get(indexes)) is None:
            read = decoders[indexes] = _open_message_decoder(file, indexes, wanted, schema_id)
        return read(bytes(memoryview(value)[at:]))

    return decode


def _open_message_decoder(
    file: FileDescriptor, indexes: tuple[int, ...], wanted: Descriptor, schema_id: int
) -> Callable[[bytes], Any]:
    """Decoder of the message at these indexes. Raises ValueError if the schema has no such message,
    or if it is not the reader's or has a field that the reader cannot read.
    """
    message = message_at(file, indexes)
    if message is None:
        raise ValueError(f"names the message {list(indexes)}, which the schema {schema_id} does not have")
    if message.full_name != wanted.full_name:
        raise ValueError(f"is a message {message.full_name}; the reader's schema is {wanted.full_name}")
    try:
        project = message_projection(message, wanted)
    except UnusableSchema as error:
        raise ValueError(f"has the schema {schema_id}: {error}") from None
    parse = GetMessageClass(message).FromString
    checked = has_required(message)

    def read(data: bytes) -> Any:
        try:
            found = parse(data)
            if checked and not found.IsInitialized():
                raise ValueError(f"it lacks the required {', '.join(found.FindInitializationErrors())}")
            return project(found)
        except (DecodeError, JsonError, ValueError) as error:
            raise ValueError(f"is not a message {message.full_name} of schema {schema_id}: {error}") from None

    return read


def has_required(message: Descriptor, seen: frozenset[str] = frozenset()) -> bool:
    """True if the message, or one in it, has required fields, as proto2 has."""
    if message.full_name in seen:
        return False
    seen |= {message.full_name}
    nested = (it.message_type for it in message.fields if it.message_type is not None)
    return any(it.is_required for it in message.fields) or any(has_required(it, seen) for it in nested)


def open_encoder(schema: RecordSchema, schema_id: int, columns: T.DataType) -> Callable[[Any], bytes]:
    """Function that encodes a row as a record with the id `schema_id`, and raises ValueError.
    `columns`: type of the rows. Raises UnusableSchema and PipelineError.
    """
    message = _message_of(schema)
    if not isinstance(columns, T.StructType):
        raise UnusableSchema(f"Protobuf records have columns; {columns.simpleString()} has none")
    convert = message_converter(message, columns)
    prefix = frame_header(schema_id) + encode_message_indexes(message_indexes(message))

    def encode(row: Any) -> bytes:
        try:
            return prefix + bytes(convert(row).SerializeToString())
        except (TypeError, ValueError, AttributeError, EncodeError, JsonError) as error:
            raise ValueError(str(error)) from None

    return encode


def _message_of(schema: RecordSchema) -> Descriptor:
    return find_message(parse_file_descriptor(schema.text), schema.message)
