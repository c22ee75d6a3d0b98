"""Formats of coordinator records, declared as data: a list of fields with the versions that carry
them.

A version of a format is read and written like a message of the protocol: from its schema.
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from ottla_broker.wire.message_reader import Cursor, MalformedMessage, schema_reader
from ottla_broker.wire.message_schema import MARKED_ENTITY, FieldSchema, MessageSchema
from ottla_broker.wire.message_writer import schema_writer

T = TypeVar("T", bound=NamedTuple)

NO_VERSION: Final = 1 << 15  # above every version

_VERSION: Final = struct.Struct(">h")


class Field(msgspec.Struct, frozen=True):
    """`kind`: kio's name of a wire type, or a format. A field of a wire type is one value, or with
    `array` an array. A field of a format is an array. With `single`, or with a `tag` and without
    `array`, it is one value or None. `since`, `until`: the first and the last version that have the
    field. `default` is the value in the other versions. A field with a `tag` is a tagged field,
    which is written only when it differs from its default.
    """

    kind: "str | RecordFormat[Any]"
    nullable: bool = False
    since: int = 0
    until: int = NO_VERSION
    default: Any = None
    tag: int | None = None
    array: bool = False
    single: bool = False


class RecordFormat(Generic[T]):
    """`record_type` has one element per field, in the order declared. Versions run from 0 to
    `latest`; from `flexible_from` on they are flexible (KIP-482)."""

    def __init__(
        self, record_type: type[T], fields: Sequence[Field], *, latest: int, flexible_from: int = NO_VERSION
    ) -> None:
        self._record_type = record_type
        self._fields = dict(zip(record_type._fields, fields, strict=True))
        self._latest = latest
        self._flexible_from = flexible_from
        self._schemas: dict[int, MessageSchema] = {}

    def read(self, data: bytes, start: int, version: int) -> T:
        """The record at `start`. Raises MalformedMessage when the version is unknown or the bytes
        end early.
        """
        cursor = Cursor(data, start)
        cursor.elements_left = len(data)  # each element takes a byte at least
        try:
            record: T = schema_reader(self.schema(version))(cursor)
        except struct.error as error:
            raise MalformedMessage(f"{self._record_type.__name__} of version {version} ends early: {error}") from error
        return record

    def write(self, record: T, version: int) -> bytes:
        """The version as i16, then the record: the value of a coordinator record."""
        out = bytearray(_VERSION.pack(version))
        schema_writer(self.schema(version))(out, record)
        return bytes(out)

    def schema(self, version: int) -> MessageSchema:
        """Raises MalformedMessage when the version is unknown."""
        if (known := self._schemas.get(version)) is None:
            if not 0 <= version <= self._latest:
                name = self._record_type.__name__
                raise MalformedMessage(f"version {version} of {name} is not known; 0 to {self._latest} are")
            known = self._schemas[version] = self._build_schema(version)
        return known

    def _build_schema(self, version: int) -> MessageSchema:
        carried, absent = [], {}
        for name, field in self._fields.items():
            if not field.since <= version <= field.until:
                absent[name] = field.default
            elif isinstance(field.kind, str):
                schema = FieldSchema(name, field.kind, None, field.array, field.nullable, field.tag, field.default)
                carried.append(schema)
            else:
                entity = field.kind.schema(version)
                is_array = field.array or not (field.single or field.tag is not None)
                kind, default = ("entity", ()) if is_array else (MARKED_ENTITY, field.default)
                carried.append(FieldSchema(name, kind, entity, is_array, field.nullable, field.tag, default))
        return MessageSchema(
            partial(self._record_type, **absent),
            version >= self._flexible_from,
            tuple(field for field in carried if field.tag is None),
            tuple(field for field in carried if field.tag is not None),
        )


def flexible(record_type: type[T], *fields: Field) -> RecordFormat[T]:
    """The format of records of one version only: 0, which is flexible."""
    return RecordFormat(record_type, fields, latest=0, flexible_from=0)
