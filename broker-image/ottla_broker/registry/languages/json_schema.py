"""JSON Schemas: their validity, the text that the registry stores, and `$ref`s.

jsonschema-rs decides what is valid, by the draft that `$schema` names, else draft 7. Nothing is
fetched from a network: a `$ref` names a reference of the schema, or a part of the schema itself.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.schema import NamedSchema

DEFAULT_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
BASE: Final = "https://references.invalid/"
"""The address of a schema without `$id`, which relative references need."""
MAX_REFS: Final = 100
"""Length of a chain of `$ref`s, in which each leads to the next."""


def load_json_schema(text: str) -> Any:
    """The JSON of a schema's text. Raises SchemaError."""
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as reason:
        raise SchemaError(f"not JSON: {reason}") from None
    if not isinstance(schema, (dict, bool)):
        raise SchemaError("a JSON Schema is an object or a boolean")
    return schema


def print_json_schema(text: str, references: Sequence[NamedSchema] = (), *, normalize: bool = False) -> str:
    """The text that the registry stores, of a valid schema: without white space. `normalize`: sorts
    keys. Raises SchemaError.
    """
    schema = load_json_schema(text)
    check_json_schema(schema, references)
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False, sort_keys=normalize)


def check_json_schema(schema: Any, references: Sequence[NamedSchema]) -> None:
    """Raises SchemaError for an invalid schema, or one with a `$ref` to nothing."""
    if isinstance(schema, bool):
        return
    document = JsonDocument(schema, load_references(references))
    try:
        checked = with_draft(schema)
        jsonschema_rs.meta.validate(checked)
        jsonschema_rs.validator_for(checked, registry=document.registry(), base_uri=document.address, offline=True)
    except jsonschema_rs.ValidationError as reason:
        where = "/".join(map(str, reason.instance_path))
        raise SchemaError(f"not a JSON Schema: {reason.message}{f' at /{where}' if where else ''}") from None
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as reason:
        raise SchemaError(f"not a JSON Schema: {reason}") from None


def refuse_to_fetch(address: str) -> Any:
    """Called by jsonschema-rs for an address that no reference has. Raises LookupError."""
    raise LookupError(f"no reference is named {address.removeprefix(BASE)!r}")


def with_draft(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with DEFAULT_DRAFT as its `$schema` if it has none."""
    return schema if "$schema" in schema else {"$schema": DEFAULT_DRAFT, **schema}


def load_references(references: Sequence[NamedSchema]) -> dict[str, Any]:
    """Schemas by the addresses that a `$ref` may have: their names and their own ids. Raises
    SchemaError.
    """
    found: dict[str, Any] = {}
    for reference in references:
        if reference.type != "JSON":
            raise SchemaError(f"reference {reference.name!r} is a schema of type {reference.type}")
        root = load_json_schema(reference.text)
        named = with_draft(root) if isinstance(root, dict) else root
        found[urljoin(BASE, reference.name)] = named
        if isinstance(root, dict) and isinstance(own := root.get("$id") or root.get("id"), str):
            found[urljoin(BASE, own)] = named
    return found


class JsonDocument:
    """A schema with those that it refers to, in which `$ref`s are looked up."""

    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self.root = root
        self._references = references
        own = (root.get("$id") or root.get("id") or "") if isinstance(root, dict) else ""
        self.address = urljoin(BASE, str(own))

    def registry(self) -> Any:
        """The referenced schemas as jsonschema-rs takes them; None if there are none."""
        resources = [(address, root) for address, root in self._references.items() if isinstance(root, dict)]
        return jsonschema_rs.Registry(resources, retriever=refuse_to_fetch) if resources else None

    def resolve(self, schema: Any) -> tuple[Any, "JsonDocument"]:
        """Follows the `$ref` of a subschema, and those that it leads to. Returns a schema without
        `$ref`, and the document that it is in. A `$ref` beside assertions that the draft does not
        ignore becomes an `allOf` of both, and is not followed. Raises SchemaError.
        """
        document: JsonDocument = self
        for _ in range(MAX_REFS):
            if not isinstance(schema, dict) or not isinstance(ref := schema.get("$ref"), str):
                return schema, document
            others = {name: value for name, value in schema.items() if name != "$ref"}
            if others.keys() & ASSERTIONS and not document.ignores_siblings:
                return {"allOf": [{"$ref": ref}, others]}, document
            schema, document = document.find(ref)
        raise SchemaError("its references lead in a circle")

    @property
    def ignores_siblings(self) -> bool:
        """True if the schema's draft ignores all keywords beside `$ref`, as up to draft 7."""
        draft = str(self.root.get("$schema", DEFAULT_DRAFT)) if isinstance(self.root, dict) else DEFAULT_DRAFT
        return any(f"draft-0{number}" in draft for number in (3, 4, 6, 7))

    def find(self, ref: str) -> tuple[Any, "JsonDocument"]:
        """The schema that a `$ref` names, and the document that it is in. Raises SchemaError."""
        address, fragment = urldefrag(urljoin(self.address, ref))
        own = urldefrag(self.address)[0]
        document = self
        if address != own:
            root = self._references.get(address)
            if root is None:
                raise SchemaError(f"$ref {ref!r} does not resolve")
            document = JsonDocument(root, self._references)
        return document.resolve_fragment(unquote(fragment), ref), document

    def resolve_fragment(self, fragment: str, ref: str) -> Any:
        """The part of the schema that a JSON pointer or an anchor names. `ref`: the `$ref`, for
        errors. Raises SchemaError.
        """
        if not fragment:
            return self.root
        if not fragment.startswith("/"):
            return find_anchor(self.root, fragment, ref)
        found = self.root
        try:
            for part in fragment[1:].split("/"):
                name = part.replace("~1", "/").replace("~0", "~")
                found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaError(f"$ref {ref!r} does not resolve") from None
        return found


ASSERTIONS: Final = frozenset(
    [
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        *("multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
        *("maxLength", "minLength", "pattern"),
        *("items", "prefixItems", "additionalItems", "maxItems", "minItems", "uniqueItems", "contains"),
        *("properties", "patternProperties", "additionalProperties", "propertyNames", "required"),
        *("maxProperties", "minProperties", "dependencies", "dependentRequired", "dependentSchemas"),
        *("unevaluatedItems", "unevaluatedProperties"),
    ]
)
"""Keywords that restrict values; others describe them."""


def find_anchor(root: Any, name: str, ref: str) -> Any:
    """The subschema with that anchor, or with `#name` as its id. Raises SchemaError."""
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("$anchor") == name or one.get("$id") == f"#{name}" or one.get("$dynamicAnchor") == name:
                return one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    raise SchemaError(f"$ref {ref!r} does not resolve")
