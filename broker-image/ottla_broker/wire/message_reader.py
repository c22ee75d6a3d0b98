"""Reads protocol messages from untrusted bytes into `kio`'s classes.

kio's own native reader is faster, but trusts the counts it reads: an array that claims 2³¹ elements
makes it reserve tens of gigabytes, and the process aborts. This reader checks every size against
the bytes that are left and bounds the number of objects of one message.
"""

import datetime
import struct
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ottla_broker.wire.message_schema import (
    EPOCH,
    LAYOUTS,
    MARKED_ENTITY,
    MILLISECOND,
    NO_UUID,
    FieldSchema,
    MessageSchema,
    schema_of,
)

# Elements of all arrays of one message. A byte can become an object of a hundred bytes: this bounds
# that memory (some tens of MB), and the time that one message takes from other connections.
MAX_ELEMENTS: Final = 100_000
# Also in flexible versions, whose lengths could be greater: a string must fit older versions and
# records.
MAX_STRING_BYTES: Final = 0x7FFF

_I8: Final = LAYOUTS["int8"]
_I16: Final = LAYOUTS["int16"]
_I32: Final = LAYOUTS["int32"]
_I64: Final = LAYOUTS["int64"]
_MAX_TIMEDELTA_MS: Final = datetime.timedelta.max // MILLISECOND
_MIN_TIMEDELTA_MS: Final = datetime.timedelta.min // MILLISECOND


class MalformedMessage(Exception):
    """Bytes that are not a message. The sender's connection is closed."""


class Cursor:
    """A position in a message.

    Every `read_*` advances it, and raises MalformedMessage, or struct.error at the end.
    """

    __slots__ = ("at", "data", "elements_left", "end")

    def __init__(self, data: bytes | bytearray, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.elements_left = MAX_ELEMENTS  # that arrays of the message may still have

    def read_fixed(self, layout: struct.Struct) -> Any:
        at = self.at
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)[0]

    def read_bytes(self, size: int) -> bytes | bytearray:
        at = self.at
        if size < 0 or size > self.end - at:
            raise MalformedMessage(f"a field of {size} bytes at {at}, where {self.end - at} bytes are left")
        self.at = at + size
        return self.data[at : self.at]

    def read_varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        data, at, value, shift = self.data, self.at, 0, 0
        if at < self.end and (byte := data[at]) < 0x80:  # nearly always
            self.at = at + 1
            return byte
        while True:
            if at >= self.end or shift > 28:
                raise MalformedMessage(f"the varint at {self.at} does not end")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7

    def read_string(self, flexible: bool) -> str | None:
        """A nullable string: its length as i16, or in flexible versions its length + 1 as a
        varint. Raises MalformedMessage.
        """
        size = self.read_varint() - 1 if flexible else self.read_fixed(_I16)
        if size < 0:
            return None
        if size > MAX_STRING_BYTES:
            raise MalformedMessage(f"a string of {size} bytes at {self.at}; the maximum is {MAX_STRING_BYTES}")
        try:
            return self.read_bytes(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(f"the string before {self.at} is not UTF-8") from error

    def read_array_length(self, flexible: bool) -> int:
        """The number of elements of an array; −1 for null."""
        count: int = self.read_varint() - 1 if flexible else self.read_fixed(_I32)
        if count > self.end - self.at or count > self.elements_left or count < -1:
            raise MalformedMessage(
                f"an array of {count} elements at {self.at}, where {self.end - self.at} bytes are left"
                f" and {self.elements_left} elements allowed"
            )
        if count > 0:
            self.elements_left -= count
        return count


ReadValue = Callable[[Cursor], Any]


@cache
def message_reader(cls: type) -> ReadValue:
    """A function that reads one `cls`; built once per class.

    It raises MalformedMessage or struct.error.
    """
    return schema_reader(schema_of(cls))


@cache
def schema_reader(schema: MessageSchema) -> ReadValue:
    cls = schema.cls
    plain = tuple((field.name, _field_reader(field, schema.flexible)) for field in schema.fields)
    if not schema.flexible:
        return lambda cursor: cls(**{name: read(cursor) for name, read in plain})
    tagged = {field.tag: (field.name, _field_reader(field, flexible=True)) for field in schema.tagged}
    defaults = {field.name: field.default for field in schema.tagged}

    def read_flexible(cursor: Cursor) -> Any:
        values = {name: read(cursor) for name, read in plain}
        if defaults:
            values.update(defaults)
        for _ in range(cursor.read_varint()):
            tag, size = cursor.read_varint(), cursor.read_varint()
            if tag in tagged:
                name, read = tagged[tag]
                end = cursor.at + size
                values[name] = read(cursor)
                if cursor.at != end:
                    raise MalformedMessage(f"tagged field {tag} does not end after its {size} bytes")
            else:
                cursor.read_bytes(size)
        return cls(**values)

    return read_flexible


def skip_tagged_fields(cursor: Cursor) -> None:
    """Skips a section of tagged fields, known or unknown."""
    for _ in range(cursor.read_varint()):
        cursor.read_varint()
        cursor.read_bytes(cursor.read_varint())


def _field_reader(field: FieldSchema, flexible: bool) -> ReadValue:
    if field.array:
        return _array_reader(_value_reader(field, flexible, nullable=False), flexible, field.nullable)
    return _value_reader(field, flexible, field.nullable)


def _value_reader(field: FieldSchema, flexible: bool, nullable: bool) -> ReadValue:
    if field.entity is not None:
        read = schema_reader(field.entity)
        if field.kind == MARKED_ENTITY:
            return _marked_entity_reader(read)
        return _nullable_entity_reader(read) if nullable and field.tag is None else read
    if field.kind == "string":
        return _string_reader(flexible, nullable)
    if field.kind in ("bytes", "records"):
        return _bytes_reader(flexible, nullable)
    return _FIXED_READERS[field.kind]


def _array_reader(read: ReadValue, flexible: bool, nullable: bool) -> ReadValue:
    def read_array(cursor: Cursor) -> tuple[Any, ...] | None:
        count = cursor.read_array_length(flexible)
        if count < 0:
            if nullable:
                return None
            raise _unexpected_null(cursor, "an array")
        return tuple([read(cursor) for _ in range(count)])

    return read_array


def _marked_entity_reader(read: ReadValue) -> ReadValue:
    return lambda cursor: read(cursor) if cursor.read_varint() else None


def _nullable_entity_reader(read: ReadValue) -> ReadValue:
    return lambda cursor: None if cursor.read_fixed(_I8) < 0 else read(cursor)


def _string_reader(flexible: bool, nullable: bool) -> ReadValue:
    def read_string(cursor: Cursor) -> str | None:
        text = cursor.read_string(flexible)
        if text is None and not nullable:
            raise _unexpected_null(cursor, "a string")
        return text

    return read_string


def _bytes_reader(flexible: bool, nullable: bool) -> ReadValue:
    def read_bytes(cursor: Cursor) -> bytes | None:
        size = cursor.read_varint() - 1 if flexible else cursor.read_fixed(_I32)
        if size < 0:
            if nullable:
                return None
            raise _unexpected_null(cursor, "bytes")
        return bytes(cursor.read_bytes(size))

    return read_bytes


def _unexpected_null(cursor: Cursor, expected: str) -> MalformedMessage:
    return MalformedMessage(f"null at {cursor.at}, where {expected} must be")


def _read_uuid(cursor: Cursor) -> uuid.UUID | None:
    value = uuid.UUID(bytes=bytes(cursor.read_bytes(16)))
    return None if value == NO_UUID else value


def _read_error_code(cursor: Cursor) -> ErrorCode:
    code = cursor.read_fixed(_I16)
    try:
        return ErrorCode(code)
    except ValueError:  # of a newer version; Kafka's clients do the same
        return ErrorCode.unknown_server_error


def _timedelta_reader(layout: struct.Struct) -> ReadValue:
    # A timedelta holds fewer milliseconds than 64 bits; such values mean "forever".
    return lambda cursor: max(_MIN_TIMEDELTA_MS, min(cursor.read_fixed(layout), _MAX_TIMEDELTA_MS)) * MILLISECOND


def _read_datetime(cursor: Cursor) -> datetime.datetime | None:
    at_ms: int = cursor.read_fixed(_I64)
    if at_ms < 0:
        return None
    try:
        return EPOCH + at_ms * MILLISECOND
    except OverflowError as error:
        raise MalformedMessage(f"{at_ms} ms is not a date") from error


def _fixed_reader(layout: struct.Struct) -> ReadValue:
    return lambda cursor: cursor.read_fixed(layout)


_FIXED_READERS: Final[dict[str, ReadValue]] = {
    **{kind: _fixed_reader(layout) for kind, layout in LAYOUTS.items()},
    "uuid": _read_uuid,
    "error_code": _read_error_code,
    "timedelta_i32": _timedelta_reader(_I32),
    "timedelta_i64": _timedelta_reader(_I64),
    "datetime_i64": _read_datetime,
}
