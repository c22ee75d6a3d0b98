"""Formats of coordinator records, declared as data: a list of fields with the versions that carry them.

Strings and byte arrays carry an i16 or i32 length in the older versions and an unsigned varint (length + 1) in the
flexible ones, which end in tagged fields (KIP-482). Unknown tags are skipped.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from ottla_broker.wire.message_reader import Cursor, MalformedMessage
from ottla_broker.wire.message_writer import write_varint

T = TypeVar("T")

NO_VERSION: Final = 1 << 15  # above every version

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class Kind(Enum):
    INT32 = auto()
    INT64 = auto()
    STRING = auto()
    NULLABLE_STRING = auto()
    BYTES = auto()
    UUID = auto()  # None stands for Kafka's all-zero id


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` may be another format: then the field is an array of it. `default` is the value in versions without the
    field. A field with a `tag` is a tagged field, which is written only when it differs from its default."""

    kind: "Kind | RecordFormat[Any]"
    since: int = 0
    until: int = NO_VERSION
    default: Any = None
    tag: int | None = None


class RecordFormat(Generic[T]):
    """`record_type` is a NamedTuple with one element per field, in the order declared. Versions run from 0 to
    `latest`; from `flexible_from` on they are flexible."""

    def __init__(
        self, record_type: Callable[..., T], fields: Sequence[Field], *, latest: int, flexible_from: int = NO_VERSION
    ) -> None:
        self.name = getattr(record_type, "__name__", "record")
        self.latest = latest
        self.flexible_from = flexible_from
        self._record_type = record_type
        self._fields = tuple(enumerate(fields))
        self._defaults = [field.default for field in fields]

    def read(self, data: bytes, start: int, version: int) -> T:
        """The record at `start`. MalformedMessage when the version is unknown or the bytes end early."""
        cursor = Cursor(data, start)
        cursor.elements = len(data)  # each element takes a byte at least
        try:
            return self._read(cursor, version)
        except struct.error as error:
            raise MalformedMessage(f"{self.name} of version {version} ends early: {error}") from error

    def write(self, record: T, version: int) -> bytes:
        """The version as i16, then the record: the value of a coordinator record."""
        out = bytearray(_INT16.pack(version))
        self._write(out, record, version)
        return bytes(out)

    def _fields_of(self, version: int) -> tuple[list[tuple[int, Field]], list[tuple[int, Field]]]:
        """(position in the record, field) of the plain fields and of the tagged ones."""
        if not 0 <= version <= self.latest:
            raise MalformedMessage(f"version {version} of {self.name} is not known; 0 to {self.latest} are")
        carried = [entry for entry in self._fields if entry[1].since <= version <= entry[1].until]
        return [entry for entry in carried if entry[1].tag is None], [
            entry for entry in carried if entry[1].tag is not None
        ]

    def _read(self, cursor: Cursor, version: int) -> T:
        flexible = version >= self.flexible_from
        plain, tagged = self._fields_of(version)
        values = self._defaults.copy()
        for position, field in plain:
            values[position] = _read_value(cursor, field.kind, version, flexible)
        for _ in range(cursor.read_varint() if flexible else 0):
            tag, size = cursor.read_varint(), cursor.read_varint()
            body = Cursor(bytes(cursor.read_bytes(size)))
            for position, field in tagged:
                if field.tag == tag:
                    values[position] = _read_value(body, field.kind, version, flexible)
        return self._record_type(*values)

    def _write(self, out: bytearray, record: Any, version: int) -> None:
        flexible = version >= self.flexible_from
        plain, tagged = self._fields_of(version)
        for position, field in plain:
            _write_value(out, field.kind, record[position], version, flexible)
        if flexible:
            present = [(position, field) for position, field in tagged if record[position] != field.default]
            write_varint(out, len(present))
            for position, field in present:
                body = bytearray()
                _write_value(body, field.kind, record[position], version, flexible)
                write_varint(out, field.tag or 0)
                write_varint(out, len(body))
                out += body


def _read_value(cursor: Cursor, kind: "Kind | RecordFormat[Any]", version: int, flexible: bool) -> Any:
    if isinstance(kind, RecordFormat):
        return tuple([kind._read(cursor, version) for _ in range(cursor.read_array_length(flexible))])
    match kind:
        case Kind.INT32:
            return cursor.read_fixed(_INT32)
        case Kind.INT64:
            return cursor.read_fixed(_INT64)
        case Kind.BYTES:
            return bytes(cursor.read_bytes(cursor.read_varint() - 1 if flexible else cursor.read_fixed(_INT32)))
        case Kind.UUID:
            raw = bytes(cursor.read_bytes(16))
            return UUID(bytes=raw) if any(raw) else None
        case Kind.STRING | Kind.NULLABLE_STRING:
            text = cursor.read_string(flexible)
            if text is None and kind is Kind.STRING:
                raise MalformedMessage(f"null at {cursor.at}, where a string must be")
            return text


def _write_value(out: bytearray, kind: "Kind | RecordFormat[Any]", value: Any, version: int, flexible: bool) -> None:
    if isinstance(kind, RecordFormat):
        _write_length(out, len(value), _INT32, flexible)
        for element in value:
            kind._write(out, element, version)
        return
    match kind:
        case Kind.INT32:
            out += _INT32.pack(value)
        case Kind.INT64:
            out += _INT64.pack(value)
        case Kind.UUID:
            out += value.bytes if value is not None else bytes(16)
        case Kind.BYTES:
            _write_length(out, len(value), _INT32, flexible)
            out += value
        case Kind.STRING | Kind.NULLABLE_STRING:
            raw = b"" if value is None else value.encode()
            _write_length(out, -1 if value is None else len(raw), _INT16, flexible)
            out += raw


def _write_length(out: bytearray, length: int, layout: struct.Struct, flexible: bool) -> None:
    """Length in bytes or elements; −1 for null."""
    if flexible:
        write_varint(out, length + 1)
    else:
        out += layout.pack(length)
