"""JSON Schemas as Spark's types, and Spark's types as JSON Schemas.

| schema | column |
|---|---|
| `boolean`, `integer`, `number` | BOOLEAN, BIGINT, DOUBLE |
| `string`; with `format` `date-time`, `date` | STRING; TIMESTAMP, DATE |
| `string` with `contentEncoding: base64` | BINARY |
| `object` with `properties`, also from `allOf` | STRUCT |
| `object` with `additionalProperties` of one schema, and no `properties` | MAP<STRING, …> |
| `array` with `items` of one schema | ARRAY |
| anything else | STRING with the value as JSON |

`null` among the types, or beside one other schema in `oneOf` or `anyOf`, does not change the
column: null becomes NULL, and so does a property that a record does not have. Columns are in the
order of the properties; those of a `$ref` are in the order of their names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urljoin

import jsonschema_rs
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError
from ottla_spark.record_schema import RecordSchema, UnusableSchema

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
BASE: Final = "https://references.invalid/"
"""The address of a schema without `$id`: relative references need one. It is never fetched."""

_SCALARS: Final[dict[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "string": T.StringType(),
}
_FORMATS: Final[dict[str, T.DataType]] = {"date-time": T.TimestampType(), "date": T.DateType()}

_JSON: Final[dict[type[T.DataType], Mapping[str, str]]] = {
    T.BooleanType: {"type": "boolean"},
    **{it: {"type": "integer"} for it in (T.ByteType, T.ShortType, T.IntegerType, T.LongType)},
    **{it: {"type": "number"} for it in (T.FloatType, T.DoubleType)},
    T.StringType: {"type": "string"},
    T.BinaryType: {"type": "string", "contentEncoding": "base64"},
    T.TimestampType: {"type": "string", "format": "date-time"},
    T.DateType: {"type": "string", "format": "date"},
}


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """The column that values of a JSON Schema become. `default`: the schema's own; None if it has
    none. `parts`: the columns of a struct, by the property's name; of an array or a map, the column
    of its elements, with the name "". `is_text`: whether the column is the JSON of values that have
    no type in Spark.
    """

    type: T.DataType
    allows_null: bool = False
    default: Any = None
    parts: Mapping[str, JsonColumn] = field(default_factory=dict)
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class JsonDocuments:
    """A schema with those that it refers to, as jsonschema-rs looks them up."""

    root: Any
    address: str
    registry: Any

    def validator(self) -> Any:
        return jsonschema_rs.validator_for(
            self.root,
            registry=self.registry,
            base_uri=self.address,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),  # in linear time
        )


def load_documents(schema: RecordSchema) -> JsonDocuments:
    """Raises UnusableSchema."""
    try:
        root = _with_draft(json.loads(schema.text))
        resources = [it for name, text in schema.references for it in _addresses(name, text)]
        address = urljoin(BASE, _own_id(root))
        documents = JsonDocuments(root, address, jsonschema_rs.Registry([*resources, (address, root)]))
        documents.validator()
    except (ValueError, TypeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise UnusableSchema(f"not a JSON Schema: {getattr(error, 'message', error)}") from None
    return documents


def _addresses(name: str, text: str) -> Iterator[tuple[str, Any]]:
    root = _with_draft(json.loads(text))
    yield from ((urljoin(BASE, it), root) for it in {name, _own_id(root)} if it)


def _with_draft(root: Any) -> Any:
    if not isinstance(root, dict):
        return {"$schema": DRAFT, "allOf": [root]}
    return root if "$schema" in root else {"$schema": DRAFT, **root}


def _own_id(root: Mapping[str, Any]) -> str:
    return str(root.get("$id") or root.get("id") or "")


def to_column(schema: RecordSchema) -> JsonColumn:
    """Raises UnusableSchema for an invalid schema, PipelineError for one that contains itself."""
    documents = load_documents(schema)
    return _column(documents.root, documents.registry.resolver(documents.address), ())


def _column(schema: Any, resolver: Any, inside: tuple[str, ...]) -> JsonColumn:
    """`inside`: the references that led here."""
    schema, resolver, inside = _follow(schema, resolver, inside)
    if _COMBINED.isdisjoint(schema):
        return _column_of_type(schema, resolver, inside)
    own = _without(schema, *_COMBINED)
    found = [_column(it, resolver, inside) for it in (*([own] if _types(own) else ()), *schema.get("allOf", ()))]
    for union in ("oneOf", "anyOf"):
        cases = schema.get(union, ())
        others = [it for it in cases if not _is_null(it)]
        if len(others) == 1:
            one = _column(others[0], resolver, inside)
            found.append(replace(one, allows_null=one.allows_null or len(cases) > 1))
    return replace(_combine(found), default=schema.get("default", found[0].default if found else None))


_COMBINED: Final = frozenset(("allOf", "oneOf", "anyOf"))


def _combine(columns: Sequence[JsonColumn]) -> JsonColumn:
    """The column of values that are valid by several schemas: an object has the properties of
    all.
    """
    typed = [it for it in columns if not it.is_text]
    if not typed:
        return _TEXT
    allows_null = all(it.allows_null for it in typed)
    if not all(isinstance(it.type, T.StructType) for it in typed):
        return replace(typed[0], allows_null=allows_null)
    parts: dict[str, JsonColumn] = {}
    for it in typed:
        parts |= {name: part for name, part in it.parts.items() if name not in parts}
    return replace(_struct(parts), allows_null=allows_null)


def _struct(parts: Mapping[str, JsonColumn]) -> JsonColumn:
    return JsonColumn(T.StructType([T.StructField(name, it.type) for name, it in parts.items()]), parts=parts)


def _follow(schema: Any, resolver: Any, inside: tuple[str, ...]) -> tuple[dict[str, Any], Any, tuple[str, ...]]:
    """The schema that a `$ref` names (the schema itself if it has none), the resolver of its own
    references, and `inside` with the references that were followed.
    """
    while isinstance(schema, dict) and isinstance(ref := schema.get("$ref"), str):
        address = f"{resolver.base_uri} {ref}"
        if address in inside:
            raise PipelineError(f"the schema {ref} contains itself, which Spark's types cannot")
        inside = (*inside, address)
        try:
            found = resolver.lookup(ref)
        except jsonschema_rs.ReferencingError as error:
            raise UnusableSchema(f"the schema refers to {ref!r}: {error}") from None
        schema, resolver = found.contents, found.resolver
    return (schema if isinstance(schema, dict) else {}), resolver, inside


def _column_of_type(schema: dict[str, Any], resolver: Any, inside: tuple[str, ...]) -> JsonColumn:
    types = _types(schema)
    column = _column_of_one_type({*types} - {"null"}, schema, resolver, inside)
    return replace(column, allows_null="null" in types or not types, default=schema.get("default"))


def _column_of_one_type(names: set[str], schema: dict[str, Any], resolver: Any, inside: tuple[str, ...]) -> JsonColumn:
    if names == {"integer", "number"}:
        names = {"number"}
    if len(names) != 1:
        return _TEXT
    (name,) = names
    if name == "array" and isinstance(items := schema.get("items"), dict):
        item = _column(items, resolver, inside)
        return JsonColumn(T.ArrayType(item.type, item.allows_null), parts={"": item})
    if name == "object":
        return _object(schema, resolver, inside)
    if name == "string" and schema.get("contentEncoding") == "base64":
        return JsonColumn(T.BinaryType())
    if name == "string":
        return JsonColumn(_FORMATS.get(str(schema.get("format")), T.StringType()))
    return JsonColumn(_SCALARS[name]) if name in _SCALARS else _TEXT


_TEXT: Final = JsonColumn(T.StringType(), is_text=True)


def _object(schema: dict[str, Any], resolver: Any, inside: tuple[str, ...]) -> JsonColumn:
    if properties := schema.get("properties"):
        return _struct({name: _column(it, resolver, inside) for name, it in properties.items()})
    if isinstance(values := schema.get("additionalProperties"), dict):
        value = _column(values, resolver, inside)
        return JsonColumn(T.MapType(T.StringType(), value.type, value.allows_null), parts={"": value})
    return _TEXT


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Names of the types that values may have; of `enum` and `const`, those of the values."""
    if "type" in schema:
        found = schema["type"]
        return list(found) if isinstance(found, list) else [found]
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        return sorted({_NAMES.get(type(it), "object") for it in values})
    return ["object"] if "properties" in schema else []


_NAMES: Final[dict[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", type(None): "null",
}  # fmt: skip


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _without(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}


def to_json_schema(columns: T.StructType, name: str) -> dict[str, Any]:
    """An object with these columns and no others, all of them nullable and none required, so that
    columns can be added. Raises PipelineError.
    """
    return {"$schema": DRAFT, "title": name, **_object_schema(columns)}


def _object_schema(columns: T.StructType) -> dict[str, Any]:
    properties = {it.name: _nullable(_to_json(it.dataType, it.name)) for it in columns}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _to_json(type_: T.DataType, where: str) -> dict[str, Any]:
    match type_:
        case T.StructType():
            return _object_schema(type_)
        case T.ArrayType():
            items = _to_json(type_.elementType, where)
            return {"type": "array", "items": _nullable(items) if type_.containsNull else items}
        case T.MapType(keyType=T.StringType()):
            values = _to_json(type_.valueType, where)
            return {"type": "object", "additionalProperties": _nullable(values) if type_.valueContainsNull else values}
    if (found := _JSON.get(type(type_))) is None:
        raise PipelineError(f"the column {where} is {type_.simpleString()}, which JSON does not have; cast it")
    return dict(found)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": ["null", schema["type"]]}
