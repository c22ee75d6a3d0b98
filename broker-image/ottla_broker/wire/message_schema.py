"""The schema of a protocol message, read once from `kio`'s generated classes.

`kio` declares every version of every message as a dataclass whose field metadata name the wire
type. The reader, the writer and the conversion between versions work from the schemas made here.
"""

import datetime
import struct
import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
from kio.schema.errors import ErrorCode

MARKED_ENTITY: Final = "marked entity"
"""Kind of a nullable entity in a tagged field of a coordinator's record: 0 for null, else 1 and the
entity."""

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
NO_UUID: Final = uuid.UUID(int=0)
"""The zeros that stand for no id on the wire. Messages are read with None in their place."""

LAYOUTS: Final = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
    "float64": struct.Struct(">d"),
    "error_code": struct.Struct(">h"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
}
"""Wire types of fixed size, by kio's names."""

# Defaults that the protocol implies where a message declares none.
_IMPLICIT_DEFAULTS: Final[dict[str, object]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint16"), 0),
    **dict.fromkeys(("timedelta_i32", "timedelta_i64"), datetime.timedelta(0)),
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "error_code": ErrorCode.none,
    "datetime_i64": EPOCH,
}


class FieldSchema(msgspec.Struct, frozen=True):
    """`kind` is kio's name of the wire type, "entity" or MARKED_ENTITY. `nullable`: None is
    allowed; of an array, for the array itself.

    `tag` is None for ordinary fields. `default` is the declared default, or the one that the
    protocol implies.
    """

    name: str
    kind: str
    entity: "MessageSchema | None"
    array: bool
    nullable: bool
    tag: int | None
    default: Any


@dataclass(frozen=True, slots=True, eq=False)
class MessageSchema:
    """`cls` takes all fields by name. `tagged` fields are sorted by their tags."""

    cls: Callable[..., Any]
    flexible: bool
    fields: tuple[FieldSchema, ...]
    tagged: tuple[FieldSchema, ...]

    @property
    def all_fields(self) -> tuple[FieldSchema, ...]:
        return self.fields + self.tagged

    def default(self) -> Any:
        """An instance with all fields at their defaults."""
        return self.cls(**{field.name: field.default for field in self.all_fields})


@cache
def schema_of(cls: type) -> MessageSchema:
    """The schema of a kio message or nested class."""
    field_schemas = [_field_schema(field) for field in fields(cls)]
    return MessageSchema(
        cls,
        bool(cls.__flexible__),  # type: ignore[attr-defined]  # every kio class has it
        tuple(field for field in field_schemas if field.tag is None),
        tuple(sorted((field for field in field_schemas if field.tag is not None), key=lambda field: field.tag or 0)),
    )


def _field_schema(field: Field[Any]) -> FieldSchema:
    declared, nullable = _split_optional(field.type)
    array = get_origin(declared) is tuple
    if array:
        element, ellipsis = get_args(declared)
        assert ellipsis is Ellipsis
        declared, is_element_nullable = _split_optional(element)
        nullable = nullable or is_element_nullable
    entity = schema_of(declared) if isinstance(declared, type) and is_dataclass(declared) else None
    kind = "entity" if entity is not None else field.metadata["kafka_type"]
    default = _default(field, kind, entity, array, nullable)
    return FieldSchema(field.name, kind, entity, array, nullable, field.metadata.get("tag"), default)


def _default(field: Field[Any], kind: str, entity: MessageSchema | None, array: bool, nullable: bool) -> Any:
    if field.default is not MISSING:
        return field.default
    if array:
        return ()
    if nullable:
        return None
    return _IMPLICIT_DEFAULTS[kind] if entity is None else entity.default()


def _split_optional(declared: Any) -> tuple[Any, bool]:
    """The type without None, and whether None is allowed."""
    if get_origin(declared) not in (Union, UnionType):
        return declared, False
    (inner,) = (arm for arm in get_args(declared) if arm is not NoneType)
    return inner, True
