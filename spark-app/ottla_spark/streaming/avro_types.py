"""Avro schemas as Spark's types, and Spark's types as Avro schemas.

Nullable columns are unions with null. Spark has no general unions: a schema with another union is
refused. https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError

_PRIMITIVES: Final[dict[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
    "enum": T.StringType(),
    "fixed": T.BinaryType(),
}
_LOGICAL: Final[dict[tuple[str, str], T.DataType]] = {
    ("long", "timestamp-millis"): T.TimestampType(),
    ("long", "timestamp-micros"): T.TimestampType(),
    ("int", "date"): T.DateType(),
    ("string", "uuid"): T.StringType(),
}
_AVRO: Final[dict[type[T.DataType], Any]] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.BinaryType: "bytes",
    T.StringType: "string",
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    T.DateType: {"type": "int", "logicalType": "date"},
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def to_spark_type(text: str) -> T.DataType:
    """Spark type of the schema's values; a record becomes a struct with a column for each field.
    Raises PipelineError.
    """
    try:
        schema: Any = fastavro.parse_schema(json.loads(text))
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise PipelineError(f"not an Avro schema: {error}") from error
    return _to_spark(schema, {}, "the schema")


def _to_spark(schema: Any, named: dict[str, Any], where: str) -> T.DataType:
    if isinstance(schema, list):
        return _to_spark(_without_null(schema, where), named, where)
    if isinstance(schema, str):
        if schema in named:
            if named[schema] is None:
                raise PipelineError(f"{where}: the type {schema} contains itself, which Spark's types cannot")
            return named[schema]  # type: ignore[no-any-return]
        return _PRIMITIVES.get(schema, T.NullType())
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return _to_spark(kind, named, where)
    if "name" in schema:
        named[schema["name"]] = None
    found = _object_to_spark(schema, kind, named, where)
    if "name" in schema:
        named[schema["name"]] = found
    return found


def _object_to_spark(schema: dict[str, Any], kind: str, named: dict[str, Any], where: str) -> T.DataType:
    """Type of a schema that is a JSON object with the type `kind`."""
    match kind:
        case "record" | "error":
            return T.StructType(
                [
                    T.StructField(it["name"], _to_spark(it["type"], named, it["name"]), _is_nullable(it["type"]))
                    for it in schema["fields"]
                ]
            )
        case "array":
            return T.ArrayType(_to_spark(schema["items"], named, where), _is_nullable(schema["items"]))
        case "map":
            values = schema["values"]
            return T.MapType(T.StringType(), _to_spark(values, named, where), _is_nullable(values))
    if schema.get("logicalType") == "decimal":
        return T.DecimalType(schema["precision"], schema.get("scale", 0))
    if (logical := _LOGICAL.get((kind, schema.get("logicalType", "")))) is not None:
        return logical
    return _to_spark(kind, named, where) if kind in named else _PRIMITIVES.get(kind, T.NullType())


def contains_itself(schema: Any, enclosing: tuple[str, ...] = ()) -> bool:
    """True if a type of a parsed schema contains itself, so that its values can be nested without
    limit. Avro defines a name before it is used, so a recursive schema uses a type's name inside
    the definition of that type.
    """
    match schema:
        case str():
            return schema in enclosing
        case list():
            return any(contains_itself(it, enclosing) for it in schema)
        case {"fields": fields, "name": name}:
            return any(contains_itself(it["type"], (*enclosing, name)) for it in fields)
        case {"items": inner} | {"values": inner} | {"type": inner}:
            return contains_itself(inner, enclosing)
    return False


def _is_nullable(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _without_null(union: list[Any], where: str) -> Any:
    others = [it for it in union if it != "null"]
    if len(others) > 1:
        raise PipelineError(
            f"{where}: the union of {', '.join(map(_name_of, others))} has no type in Spark; "
            "only a union of null and one other type has"
        )
    return others[0] if others else "null"


def _name_of(schema: Any) -> str:
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else str(schema)


def to_avro_schema(columns: T.StructType, name: str) -> dict[str, Any]:
    """Schema of an Avro record with these columns. All of them are nullable, so that columns can be
    added and removed. Raises PipelineError.
    """
    fields = []
    for field in columns:
        if not _NAME.fullmatch(field.name):
            raise PipelineError(
                f"the column {field.name!r} is not an Avro name: those have only ASCII letters, digits and _, "
                "and do not begin with a digit"
            )
        type_ = _to_avro(field.dataType, f"{name}_{field.name}", field.name)
        fields.append({"name": field.name, "type": ["null", type_], "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _to_avro(type_: T.DataType, name: str, where: str) -> Any:
    match type_:
        case T.StructType():
            return to_avro_schema(type_, name)
        case T.ArrayType():
            items = _to_avro(type_.elementType, name, where)
            return {"type": "array", "items": ["null", items] if type_.containsNull else items}
        case T.MapType(keyType=T.StringType()):
            values = _to_avro(type_.valueType, name, where)
            return {"type": "map", "values": ["null", values] if type_.valueContainsNull else values}
        case T.DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if (found := _AVRO.get(type(type_))) is None:
        raise PipelineError(f"the column {where} is {type_.simpleString()}, which Avro does not have; cast it")
    return found
