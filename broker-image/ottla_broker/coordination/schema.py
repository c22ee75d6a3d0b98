"""Record formats declared as data, and the coders that follow from them.

A format is a list of fields with the versions that carry them, as Kafka's message schemas say it. For each version a
coder is built once, from closures, so that reading a record is a walk over a tuple of functions. Strings and byte
arrays carry an i16/i32 length in the older versions and an unsigned varint (length + 1) in the flexible ones, which
end in tagged fields (KIP-482); unknown tags are passed over.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

T = TypeVar("T")
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]

NEVER: Final = 1 << 15  # above every version


class Kind(Enum):
    INT16 = auto()
    INT32 = auto()
    INT64 = auto()
    STRING = auto()
    NULLABLE_STRING = auto()
    BYTES = auto()
    UUID = auto()  # None stands for Kafka's all-zero id


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` may be another format: then the field is an array of it. `default` is what a version without the field
    reads as. With a `tag` the field is a tagged one, written only when it differs from its default."""

    kind: "Kind | Format[Any]"
    since: int = 0
    until: int = NEVER
    default: Any = None
    tag: int | None = None

    def carried_by(self, version: int) -> bool:
        return self.since <= version <= self.until


class Malformed(ValueError):
    """Bytes that are no such record."""


class Format(Generic[T]):
    """`make` takes one positional argument per field, in the order declared; reading a field back is by position too,
    so `make` is a NamedTuple. Versions run from 0 to `newest`; from `flexible_from` on they are flexible."""

    def __init__(
        self, make: Callable[..., T], fields: Sequence[Field], *, newest: int, flexible_from: int = NEVER
    ) -> None:
        self.make = make
        self.fields = tuple(fields)
        self.newest = newest
        self.flexible_from = flexible_from
        self._readers: dict[int, Reader] = {}
        self._writers: dict[int, Writer] = {}

    def read(self, data: bytes, at: int, version: int) -> T:
        """The record at `at`. Malformed when the version is unknown or the bytes end early."""
        try:
            return self.reader(version)(data, at)[0]  # type: ignore[no-any-return]
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise Malformed(
                f"{getattr(self.make, '__name__', 'record')} of version {version} does not parse: {error}"
            ) from error

    def write(self, value: T, version: int) -> bytes:
        """The version as i16, then the record: what keys and values of coordinator records begin with."""
        out = bytearray(_INT16.pack(version))
        self.writer(version)(out, value)
        return bytes(out)

    def reader(self, version: int) -> Reader:
        if version not in self._readers:
            self._check(version)
            self._readers[version] = self._build_reader(version)
        return self._readers[version]

    def writer(self, version: int) -> Writer:
        if version not in self._writers:
            self._check(version)
            self._writers[version] = self._build_writer(version)
        return self._writers[version]

    def _check(self, version: int) -> None:
        if not 0 <= version <= self.newest:
            raise Malformed(
                f"version {version} of {getattr(self.make, '__name__', 'record')} is not known; 0 to {self.newest} are"
            )

    def _build_reader(self, version: int) -> Reader:
        flexible = version >= self.flexible_from
        make = self.make
        plain: list[tuple[int, Reader]] = []
        tagged: dict[int, tuple[int, Reader]] = {}
        for position, field in enumerate(self.fields):
            if not field.carried_by(version):
                continue
            reader = _reader(field.kind, version, flexible)
            if field.tag is None:
                plain.append((position, reader))
            else:
                tagged[field.tag] = (position, reader)
        defaults = [field.default for field in self.fields]
        every_field = [position for position, _ in plain] == list(range(len(self.fields)))
        readers = tuple(reader for _, reader in plain)
        steps = tuple(plain)

        def read_all(data: bytes, at: int) -> tuple[Any, int]:
            values = []
            for reader in readers:
                value, at = reader(data, at)
                values.append(value)
            return make(*values), at

        def read_some(data: bytes, at: int) -> tuple[Any, int]:
            values = defaults.copy()
            for position, reader in steps:
                values[position], at = reader(data, at)
            if flexible:
                at = _read_tags(data, at, tagged, values)
            return make(*values), at

        return read_all if every_field and not flexible else read_some

    def _build_writer(self, version: int) -> Writer:
        flexible = version >= self.flexible_from
        plain: list[tuple[int, Writer]] = []
        tagged: list[tuple[int, int, Any, Writer]] = []
        for position, field in enumerate(self.fields):
            if not field.carried_by(version):
                continue
            writer = _writer(field.kind, version, flexible)
            if field.tag is None:
                plain.append((position, writer))
            else:
                tagged.append((field.tag, position, field.default, writer))
        tagged.sort(key=lambda entry: entry[0])

        def write(out: bytearray, value: Any) -> None:
            for position, writer in plain:
                writer(out, value[position])
            if flexible:
                present = [entry for entry in tagged if value[entry[1]] != entry[2]]
                write_unsigned(out, len(present))
                for tag, position, _, writer in present:
                    body = bytearray()
                    writer(body, value[position])
                    write_unsigned(out, tag)
                    write_unsigned(out, len(body))
                    out += body

        return write


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


def _number_reader(form: struct.Struct) -> Reader:
    unpack, size = form.unpack_from, form.size

    def read(data: bytes, at: int) -> tuple[int, int]:
        return unpack(data, at)[0], at + size

    return read


def _number_writer(form: struct.Struct) -> Writer:
    def write(out: bytearray, value: int) -> None:
        out += form.pack(value)

    return write


_NUMBERS: Final = {Kind.INT16: _INT16, Kind.INT32: _INT32, Kind.INT64: _INT64}
_LENGTHS: Final = {Kind.STRING: _INT16, Kind.NULLABLE_STRING: _INT16, Kind.BYTES: _INT32}


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """(value, position after it) of an unsigned varint of at most five bytes."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Malformed(f"a varint of more than five bytes at {at}")


def write_unsigned(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_length(flexible: bool, form: struct.Struct) -> Reader:
    """Length in bytes or elements; −1 for null."""
    if not flexible:
        return _number_reader(form)

    def read(data: bytes, at: int) -> tuple[int, int]:
        count, at = read_unsigned(data, at)
        return count - 1, at

    return read


def _write_length(flexible: bool, form: struct.Struct) -> Writer:
    if not flexible:
        return _number_writer(form)
    return lambda out, length: write_unsigned(out, length + 1)


def _reader(kind: "Kind | Format[Any]", version: int, flexible: bool) -> Reader:
    if isinstance(kind, Format):
        return _array_reader(kind.reader(version), _read_length(flexible, _INT32))
    if kind in _NUMBERS:
        return _number_reader(_NUMBERS[kind])
    if kind is Kind.UUID:
        return _read_uuid
    read_length = _read_length(flexible, _LENGTHS[kind])
    if kind is Kind.BYTES:
        return _bytes_reader(read_length)
    return _string_reader(read_length, nullable=kind is Kind.NULLABLE_STRING)


def _array_reader(read_element: Reader, read_length: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count, at = read_length(data, at)
        if count > len(data) - at:
            raise Malformed(f"an array of {count} elements in {len(data) - at} bytes")
        elements = []
        for _ in range(count):
            element, at = read_element(data, at)
            elements.append(element)
        return tuple(elements), at

    return read


def _string_reader(read_length: Reader, *, nullable: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[str | None, int]:
        length, at = read_length(data, at)
        if length < 0:
            if nullable:
                return None, at
            raise Malformed(f"null at {at}, where a string must stand")
        end = at + length
        if end > len(data):
            raise Malformed(f"a string of {length} bytes at {at} does not fit {len(data)}")
        return data[at:end].decode(), end

    return read


def _bytes_reader(read_length: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        length, at = read_length(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise Malformed(f"{length} bytes at {at} do not fit {len(data)}")
        return data[at:end], end

    return read


def _read_uuid(data: bytes, at: int) -> tuple[UUID | None, int]:
    raw = data[at : at + 16]
    if len(raw) < 16:
        raise Malformed(f"a UUID at {at} does not fit {len(data)}")
    return (UUID(bytes=raw) if any(raw) else None), at + 16


def _read_tags(data: bytes, at: int, tagged: dict[int, tuple[int, Reader]], values: list[Any]) -> int:
    count, at = read_unsigned(data, at)
    for _ in range(count):
        tag, at = read_unsigned(data, at)
        size, at = read_unsigned(data, at)
        if at + size > len(data):
            raise Malformed(f"tagged field {tag} of {size} bytes at {at} does not fit {len(data)}")
        if tag in tagged:
            position, reader = tagged[tag]
            values[position], _ = reader(data, at)
        at += size
    return at


def _writer(kind: "Kind | Format[Any]", version: int, flexible: bool) -> Writer:
    if isinstance(kind, Format):
        return _array_writer(kind.writer(version), _write_length(flexible, _INT32))
    if kind in _NUMBERS:
        return _number_writer(_NUMBERS[kind])
    if kind is Kind.UUID:
        return _write_uuid
    write_length = _write_length(flexible, _LENGTHS[kind])

    def write(out: bytearray, value: str | bytes | None) -> None:
        if value is None:
            write_length(out, -1)
            return
        raw = value.encode() if isinstance(value, str) else value
        write_length(out, len(raw))
        out += raw

    return write


def _array_writer(write_element: Writer, write_length: Writer) -> Writer:
    def write(out: bytearray, value: Sequence[Any]) -> None:
        write_length(out, len(value))
        for element in value:
            write_element(out, element)

    return write


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += value.bytes if value is not None else bytes(16)
