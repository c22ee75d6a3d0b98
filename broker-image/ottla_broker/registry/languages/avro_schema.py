"""Avro schemas: their validity, and the text that the registry stores.

fastavro decides what is valid. The text is what Java's Schema.toString prints, which other
registries store and clients compare: attributes in Avro's order, no white space, primitive types in
their short form, a namespace only where it changes.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.schema import NamedSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
OWN_ATTRIBUTES: Final = {
    "record": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "error": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "enum": {"type", "name", "namespace", "doc", "symbols", "default", "aliases"},
    "fixed": {"type", "name", "namespace", "doc", "size", "aliases"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
FIELD_ATTRIBUTES: Final = {"name", "type", "doc", "default", "order", "aliases"}


def read_avro(text: str, references: Sequence[NamedSchema] = ()) -> Any:
    """The JSON of a valid schema. Raises SchemaError for any other text."""
    raw = load_json(text)
    named: dict[str, Any] = {}
    try:
        for reference in references:
            if reference.type != "AVRO":
                raise SchemaError(f"reference {reference.name!r} is a schema of type {reference.type}")
            fastavro.parse_schema(load_json(reference.text), named_schemas=named)
        fastavro.parse_schema(raw, named_schemas=named)
    except UnknownType as reason:
        raise SchemaError(f"undefined type {reason.name!r}") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as reason:
        what = f"missing attribute {reason}" if isinstance(reason, KeyError) else str(reason)
        raise SchemaError(f"not an Avro schema: {what}") from None
    return raw


def load_json(text: str) -> Any:
    """The JSON of a schema's text. A bare word is the name of a type, as for Java's parser. Raises
    SchemaError.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as reason:
        bare = text.strip()
        if bare and all(part.isidentifier() for part in bare.split(".")):
            return bare
        raise SchemaError(f"not JSON: {reason}") from None


def print_avro(text: str, references: Sequence[NamedSchema] = (), *, normalize: bool = False) -> str:
    """The text that the registry stores. `normalize`: sorts properties and qualifies every name.
    Raises SchemaError.
    """
    raw = read_avro(text, references)
    printed = _Printer(normalize=normalize).schema(raw, "")
    return json.dumps(printed, separators=(",", ":"), ensure_ascii=False)


def full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def namespace_of(schema: dict[str, Any], enclosing: str) -> str:
    """The namespace of a named type. `enclosing`: that of the type around it."""
    name = schema["name"]
    if "." in name:
        return str(name.rpartition(".")[0])
    return str(schema["namespace"]) if schema.get("namespace") is not None else enclosing


class _Printer:
    """Rewrites the JSON of a schema in the form of Java's Schema.toString. Methods return the JSON
    of the part that they are named for. `namespace`: that of the enclosing type.
    """

    def __init__(self, *, normalize: bool) -> None:
        self._normalize = normalize

    def schema(self, raw: Any, namespace: str) -> Any:
        if isinstance(raw, str):
            return raw if raw in PRIMITIVES else self._reference(full_name(raw, namespace), namespace)
        if isinstance(raw, list):
            return [self.schema(branch, namespace) for branch in raw]
        kind = raw["type"]
        if kind in NAMED:
            return self._named(raw, kind, namespace)
        if kind == "array":
            return {"type": "array", "items": self.schema(raw["items"], namespace)} | self._properties(raw, kind)
        if kind == "map":
            return {"type": "map", "values": self.schema(raw["values"], namespace)} | self._properties(raw, kind)
        if kind in PRIMITIVES:
            properties = self._properties(raw, kind)
            return {"type": kind} | properties if properties else kind
        return self._reference(full_name(kind, namespace), namespace)

    def _reference(self, name: str, namespace: str) -> str:
        own, _, short = name.rpartition(".")
        return short if own == namespace and not self._normalize else name

    def _named(self, raw: dict[str, Any], kind: str, enclosing: str) -> dict[str, Any]:
        namespace = namespace_of(raw, enclosing)
        found: dict[str, Any] = {"type": kind, "name": raw["name"].rpartition(".")[2]}
        if namespace and (namespace != enclosing or self._normalize):
            found["namespace"] = namespace
        elif enclosing and not namespace:
            found["namespace"] = ""
        if raw.get("doc") is not None:
            found["doc"] = raw["doc"]
        if kind in ("record", "error"):
            if not isinstance(raw.get("fields"), list):
                raise SchemaError(f"not an Avro schema: record {raw['name']} has no fields")
            found["fields"] = [self._field(field, namespace) for field in raw["fields"]]
        elif kind == "enum":
            found["symbols"] = raw["symbols"]
            if "default" in raw:
                found["default"] = raw["default"]
        else:
            found["size"] = raw["size"]
        found |= self._properties(raw, kind)
        if raw.get("aliases"):
            found["aliases"] = [self._reference(full_name(one, namespace), namespace) for one in raw["aliases"]]
        return found

    def _field(self, raw: dict[str, Any], namespace: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": raw["name"], "type": self.schema(raw["type"], namespace)}
        if raw.get("doc") is not None:
            found["doc"] = raw["doc"]
        if "default" in raw:
            found["default"] = raw["default"]
        if raw.get("order", "ascending") != "ascending":
            found["order"] = raw["order"]
        if raw.get("aliases"):
            found["aliases"] = raw["aliases"]
        return found | self._others(raw, FIELD_ATTRIBUTES)

    def _properties(self, raw: dict[str, Any], kind: str) -> dict[str, Any]:
        return self._others(raw, OWN_ATTRIBUTES.get(kind, {"type"}))

    def _others(self, raw: dict[str, Any], own: set[str]) -> dict[str, Any]:
        names = [name for name in raw if name not in own and not name.startswith("__fastavro")]
        return {name: raw[name] for name in (sorted(names) if self._normalize else names)}


def resolve_avro(text: str, references: Sequence[NamedSchema] = ()) -> str:
    """The text of the schema with the definitions of the types that its references name
    (`format=resolved`). Raises SchemaError.
    """
    raw = read_avro(text, references)
    types = {}
    for reference in references:
        one = load_json(reference.text)
        if isinstance(one, dict) and "name" in one:
            types[full_name(one["name"], namespace_of(one, ""))] = one
    printed = _Printer(normalize=False).schema(_with_definitions(raw, "", types, set()), "")
    return json.dumps(printed, separators=(",", ":"), ensure_ascii=False)


def _with_definitions(raw: Any, namespace: str, types: dict[str, Any], written: set[str]) -> Any:
    """The schema, in which the first use of each name in `types` is replaced by the definition.
    `written`: names whose definitions are in the result already; this function adds to it.
    """
    if isinstance(raw, str):
        name = full_name(raw, namespace)
        if name not in types or name in written:
            return raw
        written.add(name)
        known = types[name]
        found = _with_definitions(known, "", types, written)
        return found | {"namespace": namespace_of(known, "")}
    if isinstance(raw, list):
        return [_with_definitions(branch, namespace, types, written) for branch in raw]
    found = dict(raw)
    own = namespace_of(raw, namespace) if raw["type"] in NAMED and "name" in raw else namespace
    for name in ("items", "values"):
        if name in raw:
            found[name] = _with_definitions(raw[name], own, types, written)
    if "fields" in raw:
        found["fields"] = [
            field | {"type": _with_definitions(field["type"], own, types, written)} for field in raw["fields"]
        ]
    return found
