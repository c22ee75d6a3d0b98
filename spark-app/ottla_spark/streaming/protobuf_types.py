"""Protobuf messages as Spark's types, and Spark's types as Protobuf messages.

Fields with presence (`optional`, oneof, messages) are nullable columns; others have the zero of
their type when a record does not have them. https://protobuf.dev/programming-guides/field_presence/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError

UNSIGNED_64: Final = T.DecimalType(20, 0)

SCALARS: Final[dict[int, T.DataType]] = {
    FieldDescriptor.TYPE_DOUBLE: T.DoubleType(),
    FieldDescriptor.TYPE_FLOAT: T.FloatType(),
    FieldDescriptor.TYPE_INT32: T.IntegerType(),
    FieldDescriptor.TYPE_SINT32: T.IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: T.IntegerType(),
    FieldDescriptor.TYPE_UINT32: T.LongType(),
    FieldDescriptor.TYPE_FIXED32: T.LongType(),
    FieldDescriptor.TYPE_INT64: T.LongType(),
    FieldDescriptor.TYPE_SINT64: T.LongType(),
    FieldDescriptor.TYPE_SFIXED64: T.LongType(),
    FieldDescriptor.TYPE_UINT64: UNSIGNED_64,
    FieldDescriptor.TYPE_FIXED64: UNSIGNED_64,
    FieldDescriptor.TYPE_BOOL: T.BooleanType(),
    FieldDescriptor.TYPE_STRING: T.StringType(),
    FieldDescriptor.TYPE_BYTES: T.BinaryType(),
    FieldDescriptor.TYPE_ENUM: T.StringType(),
}

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
JSON_MESSAGES: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
"""Messages of values without a schema, which are columns of JSON text."""
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_WELL_KNOWN: Final[dict[str, T.DataType]] = {
    TIMESTAMP: T.TimestampType(),
    DURATION: T.DayTimeIntervalType(),
    **dict.fromkeys(JSON_MESSAGES, T.StringType()),
}

_PROTOBUF: Final[dict[type[T.DataType], int]] = {
    T.BooleanType: FieldDescriptor.TYPE_BOOL,
    T.ByteType: FieldDescriptor.TYPE_INT32,
    T.ShortType: FieldDescriptor.TYPE_INT32,
    T.IntegerType: FieldDescriptor.TYPE_INT32,
    T.LongType: FieldDescriptor.TYPE_INT64,
    T.FloatType: FieldDescriptor.TYPE_FLOAT,
    T.DoubleType: FieldDescriptor.TYPE_DOUBLE,
    T.BinaryType: FieldDescriptor.TYPE_BYTES,
    T.StringType: FieldDescriptor.TYPE_STRING,
}
_WELL_KNOWN_NAMES: Final = {T.TimestampType: TIMESTAMP, T.DayTimeIntervalType: DURATION}
_MAP_KEYS: Final = (T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# -- from messages to columns


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def describe_type(field: FieldDescriptor) -> str:
    """The field's type as .proto files name it."""
    if is_map(field):
        return "map"
    if field.message_type is not None:
        return str(field.message_type.full_name)
    if field.enum_type is not None:
        return str(field.enum_type.full_name)
    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


def to_struct_type(message: Descriptor, inside: tuple[str, ...] = ()) -> T.StructType:
    """The columns of a message. `inside`: names of the messages that this one is nested in. Raises
    PipelineError for a message that contains itself.
    """
    if message.full_name in inside:
        raise PipelineError(f"the message {message.full_name} contains itself, which Spark's types cannot")
    inside = (*inside, message.full_name)
    return T.StructType([T.StructField(it.name, _field_type(it, inside), it.has_presence) for it in message.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> T.DataType:
    if is_map(field):
        key, value = field.message_type.fields
        return T.MapType(SCALARS[key.type], _value_type(value, inside), valueContainsNull=False)
    one = _value_type(field, inside)
    return T.ArrayType(one, containsNull=False) if field.is_repeated else one


def _value_type(field: FieldDescriptor, inside: tuple[str, ...]) -> T.DataType:
    message = field.message_type
    if message is None:
        return SCALARS[field.type]
    if message.full_name in WRAPPERS:
        return SCALARS[message.fields[0].type]
    return _WELL_KNOWN.get(message.full_name) or to_struct_type(message, inside)


# -- from columns to messages


def to_file_descriptor(
    columns: T.StructType, name: str, previous: FileDescriptorProto | None = None
) -> FileDescriptorProto:
    """A file with one message that has these columns. Columns that `previous` has keep its
    numbers, and numbers of columns that are gone are reserved. Raises PipelineError.
    """
    file = FileDescriptorProto(name="default.proto", syntax="proto3")
    before = {it.name: it for it in previous.message_type}.get(name) if previous is not None else None
    _build_message(file.message_type.add(name=name), columns, before or DescriptorProto(), file)
    return file


def _build_message(message: Any, columns: T.StructType, before: Any, file: FileDescriptorProto) -> None:
    numbers = _number_fields(message, columns.names, before)
    previous_nested = {it.name: it for it in before.nested_type}
    for column in columns:
        if not _NAME.fullmatch(column.name):
            raise PipelineError(
                f"the column {column.name!r} is not a Protobuf name: those have only ASCII letters, digits and _, "
                "and do not begin with a digit"
            )
        field = message.field.add(name=column.name, number=numbers[column.name])
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        _set_type(message, field, column.dataType, previous_nested, file)
    for field in message.field:  # protoc, too, makes a oneof for each optional field
        if field.label == FieldDescriptorProto.LABEL_OPTIONAL and field.type != FieldDescriptorProto.TYPE_MESSAGE:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _number_fields(message: Any, names: list[str], before: Any) -> Mapping[str, int]:
    """Numbers of the fields by name. Reserves in the message what may not be used again."""
    numbers = {it.name: it.number for it in before.field}
    for old in before.reserved_range:
        message.reserved_range.add(start=old.start, end=old.end)
    for name, number in numbers.items():
        if name not in names:
            message.reserved_range.add(start=number, end=number + 1)
    following = max([0, *numbers.values(), *(it.end - 1 for it in before.reserved_range)]) + 1
    for name in names:
        if name not in numbers:
            numbers[name] = following
            following += 1
    return numbers


def _set_type(message: Any, field: Any, type_: T.DataType, previous_nested: Mapping[str, Any], file: Any) -> None:
    match type_:
        case T.ArrayType(elementType=T.ArrayType() | T.MapType()):
            pass
        case T.ArrayType():
            field.label = FieldDescriptorProto.LABEL_REPEATED
            return _set_type(message, field, type_.elementType, previous_nested, file)
        case T.MapType() if isinstance(type_.keyType, _MAP_KEYS) and not isinstance(
            type_.valueType, T.ArrayType | T.MapType
        ):
            return _set_map(message, field, type_, previous_nested, file)
        case T.StructType():
            name = _nested_name(message, field.name)
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, name
            return _build_message(
                message.nested_type.add(name=name), type_, previous_nested.get(name, DescriptorProto()), file
            )
        case T.TimestampType() | T.DayTimeIntervalType():
            return _set_well_known(field, _WELL_KNOWN_NAMES[type(type_)], file)
    kind = FieldDescriptor.TYPE_UINT64 if type_ == UNSIGNED_64 else _PROTOBUF.get(type(type_))
    if kind is None:
        raise PipelineError(f"the column {field.name} is {type_.simpleString()}, which Protobuf does not have; cast it")
    field.type = kind
    return None


def _set_map(message: Any, field: Any, type_: T.MapType, previous_nested: Mapping[str, Any], file: Any) -> None:
    name = _camel_case(field.name) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    field.label, field.type, field.type_name = (
        FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_MESSAGE, name,
    )  # fmt: skip
    for number, (part, kind) in enumerate((("key", type_.keyType), ("value", type_.valueType)), 1):
        one = entry.field.add(name=part, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if isinstance(kind, T.StructType):
            row = _nested_name(message, field.name)  # beside the entry: the next version finds its numbers there
            one.type, one.type_name = FieldDescriptorProto.TYPE_MESSAGE, row
            _build_message(message.nested_type.add(name=row), kind, previous_nested.get(row, DescriptorProto()), file)
        else:
            _set_type(message, one, kind, previous_nested, file)


def _set_well_known(field: Any, full_name: str, file: Any) -> None:
    field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{full_name}"
    imported = f"{full_name.replace('.', '/').lower()}.proto"
    if imported not in file.dependency:
        file.dependency.append(imported)


def _nested_name(message: Any, column: str) -> str:
    """A name for the nested message of a column, which no other part of `message` has."""
    name = _camel_case(column) + "Row"
    taken = {it.name for it in message.nested_type} | {it.name for it in message.field}
    while name in taken:
        name += "_"
    return name


def _camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
