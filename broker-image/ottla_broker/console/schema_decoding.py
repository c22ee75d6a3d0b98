"""Decodes framed keys and values by their schemas, in the worker process of a search.

Data that a schema cannot read is left as it is: anyone may have written it, and other data can look
like a frame. The broker does not import this module, whose libraries need much memory.
"""

import io
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro
import msgspec
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ottla_broker.console.schema_framing import FRAME, DecodedBytes, DecodedRecord, schema_id_of
from ottla_broker.registry.languages.avro_schema import load_json, resolve_avro
from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from ottla_broker.registry.schema import SchemaSource, SchemaType
from ottla_broker.wire.records import Record

UNREADABLE: Final = (
    ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError, RecursionError, StopIteration,
    DecodeError, struct.error, msgspec.DecodeError, json_format.Error,
)  # fmt: skip
WELL_KNOWN: Final = "google.protobuf."
TIMESTAMP: Final = "google.protobuf.Timestamp"

Decode = Callable[[bytes], Any]


class SchemaDecoder:
    """Decodes records by the schemas that the broker has sent."""

    def __init__(self) -> None:
        self._decoders: dict[int, tuple[str, Decode] | None] = {}

    def add_schemas(self, sources: Mapping[int, SchemaSource | None]) -> None:
        """Schemas by id: None for one that the registry does not have or the user may not read."""
        for schema_id, source in sources.items():
            self._decoders[schema_id] = None if source is None else make_decoder(source)

    def unknown_ids(self, record: Record) -> list[int]:
        """Ids of the record's schemas that are still to be added."""
        ids = (schema_id_of(record.key), schema_id_of(record.value))
        return [one for one in ids if one is not None and one not in self._decoders]

    def decode(self, record: Record) -> DecodedRecord:
        """The decoded key and value; None where there is no schema, or the data does not fit it."""
        return DecodedRecord(self._decode(record.key), self._decode(record.value))

    def _decode(self, data: bytes | None) -> DecodedBytes | None:
        schema_id = schema_id_of(data)
        if data is None or schema_id is None or (known := self._decoders.get(schema_id)) is None:
            return None
        schema_type, decode = known
        try:
            return DecodedBytes(schema_type, schema_id, decode(data[FRAME.size :]))
        except UNREADABLE:
            return None


def make_decoder(source: SchemaSource) -> tuple[str, Decode] | None:
    """The schema's type, and a function that decodes data without its frame. None for an invalid
    schema.
    """
    try:
        match source.type:
            case SchemaType.avro:
                return source.type, _avro_decoder(source)
            case SchemaType.protobuf:
                return source.type, _protobuf_decoder(source)
            case SchemaType.json:
                return source.type, msgspec.json.decode
    except (SchemaError, *UNREADABLE):
        pass
    return None


# Avro


def _avro_decoder(source: SchemaSource) -> Decode:
    schema = fastavro.parse_schema(load_json(resolve_avro(source.text, source.references)))

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError("there are bytes after the value")
        return to_json_value(value)

    return decode


def to_json_value(value: Any) -> Any:
    """The value with decimals, dates, times and UUIDs, which JSON does not have, as text.
    Timestamps with a time zone remain datetimes, which filters compare.
    """
    match value:
        case dict():
            return {name: to_json_value(one) for name, one in value.items()}
        case list():
            return [to_json_value(one) for one in value]
        case datetime():
            return value if value.tzinfo is not None else value.isoformat()
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case _:
            return value


# Protobuf


def _protobuf_decoder(source: SchemaSource) -> Decode:
    file = load_descriptor(source.text, source.references)

    def decode(data: bytes) -> Any:
        path, start = read_message_indexes(data)
        messages = list(file.message_types_by_name.values())
        for index in path[:-1]:
            messages = list(messages[index].nested_types)
        message = message_factory.GetMessageClass(messages[path[-1]]).FromString(data[start:])
        return convert_message(message)

    return decode


def read_message_indexes(data: bytes) -> tuple[list[int], int]:
    """The message indexes, which name a message of the schema's file by an index for each level of
    nesting; and the position at which the message begins. Raises IndexError, ValueError.
    """
    count, at = _read_zigzag(data, 0)
    path = []
    for _ in range(count):
        index, at = _read_zigzag(data, at)
        path.append(index)
    if min(path, default=0) < 0:
        raise ValueError("a message's index is negative")
    return path or [0], at


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def convert_message(message: Message) -> Any:
    """The fields by their names in the schema. A field that is absent is left out if its schema
    tells absence from the default; otherwise it has the default.
    """
    descriptor: Descriptor = message.DESCRIPTOR
    if descriptor.full_name == TIMESTAMP:
        return message.ToDatetime(tzinfo=UTC)
    if descriptor.full_name.startswith(WELL_KNOWN):
        return json_format.MessageToDict(message)
    return {
        field.name: _field_value(field, getattr(message, field.name))
        for field in descriptor.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field_value(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"]
        return {_map_key(key): _one_value(of, value[key]) for key in value}
    if field.is_repeated:
        return [_one_value(field, one) for one in value]
    return _one_value(field, value)


def _map_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _one_value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return convert_message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
