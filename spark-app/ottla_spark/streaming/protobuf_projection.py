"""Protobuf messages of a writer as values of a reader's columns.

The fields of both schemas are matched by number. A field that the writer's schema lacks has the
reader's default. Types are compared once for a writer's schema, not for each record.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ottla_spark.record_schema import UnusableSchema
from ottla_spark.streaming.protobuf_types import DURATION, JSON_MESSAGES, TIMESTAMP, WRAPPERS, describe_type, is_map

Convert = Callable[[Any], Any]
"""Converts a value of the writer to one that Spark accepts. Raises ValueError and
json_format.Error."""

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_F: Final = FieldDescriptor
_RANGES: Final[dict[int, tuple[int, int]]] = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), (0, 2**64 - 1)),
}
_UNSIGNED_64: Final = (0, 2**64 - 1)
# (type of the writer, of the reader) → how a value is converted; None: it stays as it is. Integers
# and enums are in `_value_projection`.
_CONVERSIONS: Final[dict[tuple[int, int], Convert | None]] = {
    (_F.TYPE_BOOL, _F.TYPE_BOOL): None,
    (_F.TYPE_STRING, _F.TYPE_STRING): None,
    (_F.TYPE_BYTES, _F.TYPE_BYTES): None,
    (_F.TYPE_STRING, _F.TYPE_BYTES): str.encode,
    (_F.TYPE_BYTES, _F.TYPE_STRING): bytes.decode,
    (_F.TYPE_FLOAT, _F.TYPE_FLOAT): None,
    (_F.TYPE_DOUBLE, _F.TYPE_DOUBLE): None,
    (_F.TYPE_FLOAT, _F.TYPE_DOUBLE): None,
}


def message_projection(writer: Descriptor, reader: Descriptor) -> Convert:
    """Function from the writer's messages to tuples of the reader's fields. Raises UnusableSchema
    if the type of a field cannot be read as the reader's.
    """
    fields = [_field_projection(writer.fields_by_number.get(it.number), it) for it in reader.fields]
    return lambda message: tuple([read(message) for read in fields])


def _field_projection(writer: FieldDescriptor | None, reader: FieldDescriptor) -> Convert:
    absent = _absent(reader)
    if writer is None:
        return lambda message: absent
    name = writer.name
    if is_map(writer) or is_map(reader):
        return _map_projection(writer, reader)
    convert = _value_projection(writer, reader)
    if writer.is_repeated:
        return _list_projection(name, convert, None if reader.is_repeated else absent, is_list=reader.is_repeated)
    one = convert if not reader.is_repeated else lambda value: [value if convert is None else convert(value)]
    if writer.has_presence:
        return lambda message: (
            (getattr(message, name) if one is None else one(getattr(message, name)))
            if message.HasField(name)
            else absent
        )
    return (lambda message: getattr(message, name)) if one is None else lambda message: one(getattr(message, name))


def _list_projection(name: str, convert: Convert | None, absent: Any, *, is_list: bool) -> Convert:
    """Reads a repeated field as a list. `is_list` False: the reader's field is not repeated, and
    gets the last element.
    """
    if not is_list:
        read = convert or (lambda value: value)
        return lambda message: read(found[-1]) if (found := getattr(message, name)) else absent
    if convert is None:
        return lambda message: list(getattr(message, name))
    return lambda message: [convert(it) for it in getattr(message, name)]


def _map_projection(writer: FieldDescriptor, reader: FieldDescriptor) -> Convert:
    if not (is_map(writer) and is_map(reader)):
        raise _unreadable(writer, reader)
    keys, values = (
        _value_projection(*pair) or (lambda value: value)
        for pair in zip(writer.message_type.fields, reader.message_type.fields, strict=True)
    )
    name = writer.name
    return lambda message: {keys(key): values(value) for key, value in getattr(message, name).items()}


def _absent(field: FieldDescriptor) -> Any:
    """The value of a field that a record does not have: the schema's own default; without one, null
    where the field has presence, otherwise the zero of its type.
    """
    if field.is_repeated:
        return {} if is_map(field) else []
    if field.message_type is not None or (field.has_presence and not field.has_default_value):
        return None
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    return Decimal(field.default_value) if _RANGES.get(field.type) == _UNSIGNED_64 else field.default_value


def _value_projection(writer: FieldDescriptor, reader: FieldDescriptor) -> Convert | None:
    """None if the value stays as it is. Raises UnusableSchema."""
    if writer.message_type is not None or reader.message_type is not None:
        return _message_value_projection(writer, reader)
    if (writer.type, reader.type) in _CONVERSIONS:
        return _CONVERSIONS[writer.type, reader.type]
    if reader.enum_type is not None and (writer.enum_type is not None or writer.type in _RANGES):
        return _enum_names(writer.enum_type, reader.enum_type)
    if reader.type in _RANGES and (writer.type in _RANGES or writer.type in (_F.TYPE_ENUM, _F.TYPE_BOOL)):
        return _to_integer(writer, reader)
    if reader.type == _F.TYPE_BOOL and writer.type in _RANGES:
        return bool
    raise _unreadable(writer, reader)


def _message_value_projection(writer: FieldDescriptor, reader: FieldDescriptor) -> Convert:
    written, read = writer.message_type, reader.message_type
    if written is None or read is None:
        raise _unreadable(writer, reader)
    well_known = {TIMESTAMP, DURATION, *JSON_MESSAGES, *WRAPPERS}
    if {written.full_name, read.full_name} & well_known and written.full_name != read.full_name:
        raise _unreadable(writer, reader)
    if read.full_name == TIMESTAMP:
        return read_timestamp
    if read.full_name == DURATION:
        return read_duration
    if read.full_name in JSON_MESSAGES:
        return lambda message: json_format.MessageToJson(message, indent=None)
    if read.full_name in WRAPPERS:
        convert = _value_projection(written.fields[0], read.fields[0])
        return (lambda message: message.value) if convert is None else lambda message: convert(message.value)
    return message_projection(written, read)


def _enum_names(writer: Any, reader: Any) -> Convert:
    """Function from numbers to names, the reader's first. A number without a name becomes its
    digits.
    """
    known = {number: it.name for number, it in writer.values_by_number.items()} if writer is not None else {}
    names = known | {number: it.name for number, it in reader.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def _to_integer(writer: FieldDescriptor, reader: FieldDescriptor) -> Convert | None:
    low, high = _RANGES[reader.type]
    least, greatest = _RANGES.get(writer.type, (0, 1) if writer.type == _F.TYPE_BOOL else (-(2**31), 2**31 - 1))
    convert: type = Decimal if (low, high) == _UNSIGNED_64 else int
    if low <= least and greatest <= high:
        return None if convert is int and writer.type != _F.TYPE_BOOL else convert

    def checked(value: int) -> Any:
        if not low <= value <= high:
            raise ValueError(f"{reader.name} is {value}, and {describe_type(reader)} is from {low} to {high}")
        return convert(value)

    return checked


def read_timestamp(message: Any) -> datetime.datetime:
    """The time to the microsecond, as Spark has it."""
    try:
        return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        raise ValueError(f"{message.seconds} s since 1970 is not a time from year 1 to 9999") from None


def read_duration(message: Any) -> datetime.timedelta:
    try:
        return datetime.timedelta(seconds=message.seconds, microseconds=int(message.nanos / 1000))
    except OverflowError:
        raise ValueError(f"{message.seconds} s is not a duration of at most 10,000 years") from None


def _unreadable(writer: FieldDescriptor, reader: FieldDescriptor) -> UnusableSchema:
    return UnusableSchema(
        f"its field {writer.name} = {writer.number} is {describe_type(writer)}, which cannot be read as "
        f"{describe_type(reader)} {reader.name}"
    )
