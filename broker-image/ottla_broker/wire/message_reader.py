"""Reads protocol messages into `kio`'s classes, from bytes that nobody vouches for.

kio's own native reader is faster, but believes the counts it reads: an array that claims 2³¹ elements makes it
reserve tens of gigabytes, and the process aborts. So the broker reads with this, which checks every size against the
bytes that are there and bounds the number of objects one message can make.
"""

import datetime
import struct
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ottla_broker.wire.message_schema import EPOCH, NO_UUID, FieldSchema, schema_of

# Elements of all arrays of one message together. A byte on the wire can become an object of a hundred bytes; this
# bounds both that memory (some tens of MB) and the time one message can take from other connections.
MAX_ELEMENTS: Final = 100_000

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_F64 = struct.Struct(">d")
_MILLISECOND = datetime.timedelta(milliseconds=1)
_LONGEST = datetime.timedelta.max // _MILLISECOND
_SHORTEST = datetime.timedelta.min // _MILLISECOND  # not as far from 0 as the longest


class MalformedMessage(Exception):
    """Bytes that are no message. It costs the sender its connection (DESIGN, rule 18)."""


LONGEST_TEXT = (
    0x7FFF  # also in flexible versions, whose lengths could say more: what is read must fit older versions and records
)


class Cursor:
    """A place in a message. Every `take_*` moves on, and raises Malformed (or struct.error, at the end of the
    bytes)."""

    __slots__ = ("at", "data", "elements", "end")

    def __init__(self, data: bytes | bytearray, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.elements = MAX_ELEMENTS

    def read_fixed(self, layout: struct.Struct) -> Any:
        at = self.at
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)[0]

    def read_bytes(self, size: int) -> bytes | bytearray:
        at = self.at
        if size < 0 or size > self.end - at:
            raise MalformedMessage(f"{size} bytes announced at {at}, {self.end - at} are left")
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
                raise MalformedMessage(f"no end of the varint at {self.at}")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7

    def read_string(self, flexible: bool) -> str | None:
        """A nullable string: its length as i16, or in flexible versions as a varint of one more."""
        size = self.read_varint() - 1 if flexible else self.read_fixed(_I16)
        if size < 0:
            return None
        if size > LONGEST_TEXT:
            raise MalformedMessage(f"a string of {size} bytes at {self.at}; {LONGEST_TEXT} is the most")
        try:
            return self.read_bytes(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(f"no UTF-8 before {self.at}") from error

    def read_array_length(self, flexible: bool) -> int:
        """Elements of an array; -1 for null."""
        count: int = self.read_varint() - 1 if flexible else self.read_fixed(_I32)
        if count > self.end - self.at or count > self.elements or count < -1:
            raise MalformedMessage(
                f"an array of {count} elements at {self.at}, where {self.end - self.at} bytes are left"
            )
        if count > 0:
            self.elements -= count
        return count


Read = Callable[[Cursor], Any]


@cache
def message_reader(cls: type) -> Read:
    """A function that reads one `cls` at a cursor; made once per class. It raises Malformed or struct.error."""
    shape = schema_of(cls)
    plain = tuple((field.name, _field_reader(field, shape.flexible)) for field in shape.fields)
    if not shape.flexible:
        return lambda cursor: cls(**{name: read(cursor) for name, read in plain})
    tagged = {field.tag: (field.name, _field_reader(field, flexible=True)) for field in shape.tagged}
    defaults = {field.name: field.default for field in shape.tagged}

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
                    raise MalformedMessage(f"tag {tag} takes {size} bytes, and says otherwise")
            else:
                cursor.read_bytes(size)
        return cls(**values)

    return read_flexible


def skip_tagged_fields(cursor: Cursor) -> None:
    """Passes over a section of tagged fields that we know nothing of."""
    for _ in range(cursor.read_varint()):
        cursor.read_varint()
        cursor.read_bytes(cursor.read_varint())


def _field_reader(field: FieldSchema, flexible: bool) -> Read:
    nullable = field.nullable and field.tag is None
    if field.array:
        return _array_reader(_value_reader(field, flexible, nullable=False), flexible, field.nullable)
    return _value_reader(field, flexible, nullable)


def _value_reader(field: FieldSchema, flexible: bool, nullable: bool) -> Read:
    if field.entity is not None:
        read = message_reader(field.entity)
        return _nullable_entity(read) if nullable else read
    if field.kind == "string":
        return _string_reader(flexible, field.nullable and not field.array)
    if field.kind in ("bytes", "records"):
        return _bytes_reader(flexible, field.nullable and not field.array)
    return _FIXED[field.kind]


def _array_reader(read: Read, flexible: bool, nullable: bool) -> Read:
    def read_array(cursor: Cursor) -> tuple[Any, ...] | None:
        count = cursor.read_array_length(flexible)
        if count < 0:
            if nullable:
                return None
            raise MalformedMessage(f"null at {cursor.at}, where an array must be")
        return tuple([read(cursor) for _ in range(count)])

    return read_array


def _nullable_entity(read: Read) -> Read:
    return lambda cursor: None if cursor.read_fixed(_I8) < 0 else read(cursor)


def _string_reader(flexible: bool, nullable: bool) -> Read:
    def read_string(cursor: Cursor) -> str | None:
        text = cursor.read_string(flexible)
        if text is None and not nullable:
            raise MalformedMessage(f"null at {cursor.at}, where a string must be")
        return text

    return read_string


def _bytes_reader(flexible: bool, nullable: bool) -> Read:
    def read_bytes(cursor: Cursor) -> bytes | None:
        size = cursor.read_varint() - 1 if flexible else cursor.read_fixed(_I32)
        if size < 0:
            if nullable:
                return None
            raise MalformedMessage(f"null at {cursor.at}, where bytes must be")
        return bytes(cursor.read_bytes(size))

    return read_bytes


def _uuid(cursor: Cursor) -> uuid.UUID | None:
    value = uuid.UUID(bytes=bytes(cursor.read_bytes(16)))
    return None if value == NO_UUID else value


def _error_code(cursor: Cursor) -> ErrorCode:
    code = cursor.read_fixed(_I16)
    try:
        return ErrorCode(code)
    except ValueError:  # a newer broker's; what Kafka's own clients make of it
        return ErrorCode.unknown_server_error


def _timedelta(layout: struct.Struct) -> Read:
    # 64 bits of milliseconds are more than a timedelta holds; "for ever" is what is meant then.
    return lambda cursor: max(_SHORTEST, min(cursor.read_fixed(layout), _LONGEST)) * _MILLISECOND


def _datetime(cursor: Cursor) -> datetime.datetime | None:
    at_ms: int = cursor.read_fixed(_I64)
    if at_ms < 0:
        return None
    try:
        return EPOCH + at_ms * _MILLISECOND
    except OverflowError as error:
        raise MalformedMessage(f"{at_ms} ms is no date") from error


def _fixed(layout: struct.Struct) -> Read:
    return lambda cursor: cursor.read_fixed(layout)


_FIXED: dict[str, Read] = {
    "bool": lambda cursor: cursor.read_fixed(_I8) != 0,
    "int8": _fixed(_I8),
    "int16": _fixed(_I16),
    "uint16": _fixed(_U16),
    "int32": _fixed(_I32),
    "int64": _fixed(_I64),
    "float64": _fixed(_F64),
    "uuid": _uuid,
    "error_code": _error_code,
    "timedelta_i32": _timedelta(_I32),
    "timedelta_i64": _timedelta(_I64),
    "datetime_i64": _datetime,
}
