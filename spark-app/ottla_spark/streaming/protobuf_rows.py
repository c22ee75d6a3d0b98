"""Converts rows to Protobuf messages. The types of columns are checked against their fields once,
when the converter is made, not for each row.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError
from ottla_spark.streaming.protobuf_projection import EPOCH
from ottla_spark.streaming.protobuf_types import (
    DURATION,
    JSON_MESSAGES,
    SCALARS,
    TIMESTAMP,
    UNSIGNED_64,
    WRAPPERS,
    describe_type,
    is_map,
)

Fill = Callable[[Any, Any], None]
"""Sets a message, or a field of it, to a value of Spark's. Raises ValueError, TypeError,
AttributeError and json_format.ParseError."""
Convert = Callable[[Any], Any]

_INTEGER_TYPES: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def message_filler(message: Descriptor, columns: T.StructType) -> Fill:
    """Function that sets a message to a row with these columns. Raises PipelineError if the
    message does not have a column, or has it with another type.
    """
    fields = message.fields_by_name
    if unknown := [name for name in columns.names if name not in fields]:
        raise PipelineError(
            f"the message {message.full_name} has no field {', '.join(unknown)}; it has {', '.join(fields)}"
        )
    setters = [_field_filler(fields[it.name], it.dataType) for it in columns]
    has_required = any(it.is_required for it in message.fields)

    def fill(target: Any, row: Any) -> None:
        for set_field, value in zip(setters, row, strict=True):
            set_field(target, value)
        if has_required and not target.IsInitialized():
            raise ValueError(f"the required {', '.join(target.FindInitializationErrors())} is null")

    return fill


def message_converter(message: Descriptor, columns: T.StructType) -> Convert:
    """Function from rows to messages. Raises PipelineError."""
    new, fill = GetMessageClass(message), message_filler(message, columns)

    def convert(row: Any) -> Any:
        made = new()
        fill(made, row)
        return made

    return convert


def _field_filler(field: FieldDescriptor, type_: T.DataType) -> Fill:
    if is_map(field):
        return _map_filler(field, type_)
    if field.is_repeated:
        return _list_filler(field, type_)
    name = field.name
    if field.message_type is not None:
        fill = _value_filler(field, type_)

        def set_message(target: Any, value: Any) -> None:
            if value is not None:
                one = getattr(target, name)
                one.SetInParent()
                fill(one, value)

        return set_message
    convert, can_be_null = _scalar_converter(field, type_), field.has_presence

    def set_scalar(target: Any, value: Any) -> None:
        if value is not None:
            setattr(target, name, convert(value))
        elif not can_be_null:
            raise ValueError(f"{name} is null, and its field is neither optional nor part of a oneof")

    return set_scalar


def _list_filler(field: FieldDescriptor, type_: T.DataType) -> Fill:
    if not isinstance(type_, T.ArrayType):
        raise _type_mismatch(field, type_)
    name = field.name
    if field.message_type is None:
        convert = _scalar_converter(field, type_.elementType)
        return lambda target, value: getattr(target, name).extend(map(convert, value or ()))
    fill = _value_filler(field, type_.elementType)

    def set_messages(target: Any, value: Any) -> None:
        messages = getattr(target, name)
        for one in value or ():
            fill(messages.add(), one)

    return set_messages


def _map_filler(field: FieldDescriptor, type_: T.DataType) -> Fill:
    if not isinstance(type_, T.MapType):
        raise _type_mismatch(field, type_)
    name, (key, value) = field.name, field.message_type.fields
    key_of = _scalar_converter(key, type_.keyType)
    if value.message_type is None:
        value_of = _scalar_converter(value, type_.valueType)

        def set_scalars(target: Any, entries: Any) -> None:
            field_entries = getattr(target, name)
            for key, value in (entries or {}).items():
                field_entries[key_of(key)] = value_of(value)

        return set_scalars
    fill = _value_filler(value, type_.valueType)

    def set_messages(target: Any, entries: Any) -> None:
        field_entries = getattr(target, name)
        for key, value in (entries or {}).items():
            fill(field_entries[key_of(key)], value)

    return set_messages


def _scalar_converter(field: FieldDescriptor, type_: T.DataType) -> Convert:
    wanted = SCALARS[field.type]
    if field.message_type is None:
        if field.enum_type is not None and isinstance(type_, T.StringType):
            return _enum_converter(field)
        if isinstance(wanted, T.IntegerType | T.LongType | T.DecimalType) and (
            isinstance(type_, _INTEGER_TYPES) or type_ == UNSIGNED_64
        ):
            return int
        if isinstance(wanted, T.FloatType | T.DoubleType) and isinstance(type_, T.FloatType | T.DoubleType):
            return float
        if isinstance(wanted, T.BinaryType) and type_ == wanted:
            return bytes
        if isinstance(wanted, T.StringType | T.BooleanType) and type_ == wanted and field.enum_type is None:
            return _not_null
    raise _type_mismatch(field, type_)


def _not_null(value: Any) -> Any:
    if value is None:
        raise ValueError("Protobuf has no null in lists and maps")
    return value


def _enum_converter(field: FieldDescriptor) -> Convert:
    numbers: dict[str, int] = {it.name: it.number for it in field.enum_type.values}

    def convert(name: str) -> int:
        if (number := numbers.get(name)) is not None:
            return number
        if name is not None and name.removeprefix("-").isdecimal():
            return int(name)
        raise ValueError(f"{field.name} is {name!r}, which is none of {', '.join(numbers)}")

    return convert


def _value_filler(field: FieldDescriptor, type_: T.DataType) -> Fill:
    """Function that sets a message: the value of a field, an element of a list, or the value of a
    map's entry.
    """
    full_name = field.message_type.full_name
    if full_name == TIMESTAMP and isinstance(type_, T.TimestampType):
        return _fill_timestamp
    if full_name == DURATION and isinstance(type_, T.DayTimeIntervalType):
        return _fill_duration
    if full_name in JSON_MESSAGES and isinstance(type_, T.StringType):
        return lambda target, value: json_format.Parse(value, target) and None
    if full_name in WRAPPERS:
        convert = _scalar_converter(field.message_type.fields[0], type_)
        return lambda target, value: setattr(target, "value", convert(value))
    if full_name in {TIMESTAMP, DURATION} | JSON_MESSAGES or not isinstance(type_, T.StructType):
        raise _type_mismatch(field, type_)
    fill = message_filler(field.message_type, type_)

    def fill_row(target: Any, row: Any) -> None:
        fill(target, _not_null(row))

    return fill_row


def _fill_timestamp(target: Any, value: datetime.datetime) -> None:
    """Spark passes times without a time zone, in this machine's local time."""
    since = _not_null(value).astimezone(datetime.UTC) - EPOCH
    target.seconds, target.nanos = since.days * 86_400 + since.seconds, since.microseconds * 1000


def _fill_duration(target: Any, value: datetime.timedelta) -> None:
    """Seconds and nanoseconds have the same sign."""
    length = abs(_not_null(value))
    sign = 1 if length == value else -1
    target.seconds = sign * (length.days * 86_400 + length.seconds)
    target.nanos = sign * length.microseconds * 1000


def _type_mismatch(field: FieldDescriptor, type_: T.DataType) -> PipelineError:
    label = "repeated " if field.is_repeated and not is_map(field) else ""
    return PipelineError(
        f"the column {field.name} is {type_.simpleString()}, and the field {field.name} is "
        f"{label}{describe_type(field)}; cast it"
    )
