"""The shape of a protocol message, read once from `kio`'s generated classes.

`kio` declares every message of every version as a dataclass whose field metadata name the wire type. Everything that
walks messages (reading, writing, converting between versions) works from the shapes made here.
"""

import datetime
import uuid
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import EllipsisType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from kio.schema.errors import ErrorCode

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_IMPLICIT: dict[str, object] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "datetime_i64": EPOCH,
}


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field. `kind` is kio's name of the wire type, or "entity"; `nullable` says whether None may stand on the
    wire (of the array, for arrays); `tag` is None for ordinary fields; `default` is the declared default, or the one
    the protocol implies."""

    name: str
    kind: str
    entity: type | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any


@dataclass(frozen=True, slots=True)
class MessageSchema:
    cls: type
    flexible: bool
    fields: tuple[FieldSchema, ...]
    tagged: tuple[FieldSchema, ...]  # by rising tag

    @property
    def all_fields(self) -> tuple[FieldSchema, ...]:
        return self.fields + self.tagged


@cache
def schema_of(cls: type) -> MessageSchema:
    """The shape of a kio message or nested class."""
    shapes = [_field_shape(field) for field in fields(cls)]
    return MessageSchema(
        cls,
        bool(cls.__flexible__),  # type: ignore[attr-defined]  # every kio class has it
        tuple(shape for shape in shapes if shape.tag is None),
        tuple(sorted((shape for shape in shapes if shape.tag is not None), key=lambda shape: shape.tag or 0)),
    )


def default_message(cls: type) -> Any:
    """An instance of a kio class with every field at its default."""
    return cls(**{field.name: field.default for field in schema_of(cls).all_fields})


def _field_shape(field: Field[Any]) -> FieldSchema:
    declared, nullable = _without_none(field.type)
    array = get_origin(declared) is tuple
    if array:
        element, rest = get_args(declared)
        assert isinstance(rest, EllipsisType)
        declared, nullable_element = _without_none(element)
        nullable = nullable or nullable_element
    entity = declared if is_dataclass(declared) else None
    kind = "entity" if entity is not None else field.metadata["kafka_type"]
    return FieldSchema(
        name=field.name,
        kind=kind,
        entity=entity if isinstance(entity, type) else None,
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=_default(field, kind, entity if isinstance(entity, type) else None, array, nullable),
    )


def _default(field: Field[Any], kind: str, entity: type | None, array: bool, nullable: bool) -> Any:
    if field.default is not MISSING:
        return field.default
    if array:
        return ()
    if nullable:
        return None
    if entity is not None:
        return default_message(entity)
    return _IMPLICIT[kind]


def _without_none(declared: Any) -> tuple[Any, bool]:
    if get_origin(declared) not in (Union, UnionType):
        return declared, False
    (inner,) = (arm for arm in get_args(declared) if arm is not NoneType)
    return inner, True


NO_UUID = uuid.UUID(int=0)
