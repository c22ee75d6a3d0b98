"""Validation of resources in plain JSON: unknown fields, the CRD's schema, then the rules.

The API server evaluates the same schema, and those rules that have a CEL expression. It drops
unknown fields unless the client asks for strict validation. Here each problem has the path of the
field, the value and the allowed values, and a suggestion for a misspelt name.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from jsonschema import Draft4Validator
from jsonschema.exceptions import ValidationError

from ottla_operator.resources.cluster_console import WEB_URL
from ottla_operator.resources.cluster_listener import LISTENER_NAME
from ottla_operator.resources.common import (
    API_VERSION,
    DURATION,
    IDENTIFIER,
    OBJECT_NAME,
    PYTHON_NAME,
    QUANTITY,
    STARTING_OFFSETS,
    TENANT,
    TIME,
    TOPIC_NAME,
)
from ottla_operator.resources.crds import KINDS, CustomResourceKind, openapi_schema
from ottla_operator.resources.formats import MESSAGE_NAME
from ottla_operator.resources.model import Json
from ottla_operator.resources.object_store import ENDPOINT_URL
from ottla_operator.resources.rules import FieldPath, Problem, find_broken_rules
from ottla_operator.resources.schema import JsonSchema
from ottla_operator.resources.table_sinks import CATALOG_URI, ICEBERG_TABLE, JDBC_TABLE, JDBC_URL, PARTITION_FIELD

__all__ = [
    "FieldPath",
    "Problem",
    "did_you_mean",
    "find_kind",
    "find_spec_problems",
    "validate_resource",
    "validate_update",
]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing if no known word is similar."""
    by_lower_case = {it.lower(): it for it in known}
    similar = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.6)
    return f"; did you mean {by_lower_case[similar[0]]!r}?" if similar else ""


def find_kind(name: str) -> CustomResourceKind | None:
    return next((kind for kind in KINDS if kind.name == name), None)


def validate_resource(data: Json) -> list[Problem]:
    """Problems of one resource; empty if it is valid. Rules are evaluated only if the schema
    matches.
    """
    if not isinstance(data, dict):
        return [Problem((), f"a resource is an object with apiVersion, kind, metadata and spec, not {_quote(data)}")]
    if data.get("apiVersion") != API_VERSION:
        return [Problem(("apiVersion",), f"{_quote(data.get('apiVersion'))} is not supported; expected {API_VERSION}")]
    kind = find_kind(str(data.get("kind")))
    if kind is None:
        names = [it.name for it in KINDS]
        hint = did_you_mean(str(data.get("kind")), names)
        return [Problem(("kind",), f"{_quote(data.get('kind'))} is none of {', '.join(names)}{hint}")]
    problems = [
        *_find_metadata_problems(data),
        *_find_unknown_fields(data, _schema(kind), ()),
        *_find_schema_problems(data, kind),
    ]
    return problems or list(find_broken_rules(kind.spec, data["spec"], ("spec",)))


def find_spec_problems(resource: Json) -> str:
    """Problems of a stored resource, in one line; empty if it is valid. Only apiVersion, kind, name
    and spec are validated.
    """
    stored = {key: resource[key] for key in ("apiVersion", "kind", "spec")}
    found = validate_resource({**stored, "metadata": {"name": resource["metadata"]["name"]}})
    return "; ".join(map(str, found))


def validate_update(new: dict[str, Json], old: dict[str, Json]) -> list[Problem]:
    """Changes that an update may not make. Both are valid resources of the same kind and name."""
    kind = find_kind(new["kind"])
    assert kind is not None
    return list(find_broken_rules(kind.spec, new["spec"], ("spec",), old["spec"]))


@cache
def _schema(kind: CustomResourceKind) -> JsonSchema:
    return openapi_schema(kind)


@cache
def _validator(kind: CustomResourceKind) -> Draft4Validator:
    """OpenAPI v3.0 matches draft 4 of JSON Schema in what is used here: exclusiveMinimum is a
    flag.
    """
    return Draft4Validator(_schema(kind))


_OBJECT_NAME: Final = Draft4Validator({"type": "string", "maxLength": 253, "pattern": OBJECT_NAME})


def _find_metadata_problems(data: dict[str, Json]) -> Iterator[Problem]:
    metadata = data.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        yield Problem(("metadata",), "metadata.name is required")
    elif not _OBJECT_NAME.is_valid(metadata["name"]):
        yield Problem(
            ("metadata", "name"),
            f"{metadata['name']!r} is not a Kubernetes object name: up to 253 lower-case letters, digits, '-' and '.'",
        )


def _find_unknown_fields(data: Json, schema: JsonSchema, path: FieldPath) -> Iterator[Problem]:
    """Fields that the schema does not declare. By default the API server drops them with a
    warning.
    """
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield from _find_unknown_fields(item, schema.get("items", {}), (*path, index))
    if not isinstance(data, dict) or schema.get("x-kubernetes-preserve-unknown-fields") or path == ("metadata",):
        return
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    for key, value in data.items():
        if not isinstance(key, str):
            yield Problem(path, f"the key {key!r} is not a string; put it in quotes")
        elif properties and key in properties:
            yield from _find_unknown_fields(value, properties[key], (*path, key))
        elif isinstance(others, dict):
            yield from _find_unknown_fields(value, others, (*path, key))
        elif properties is not None:
            hint = did_you_mean(key, properties) or f"; known fields: {', '.join(properties)}"
            yield Problem((*path, key), f"unknown field{hint}")


def _find_schema_problems(data: dict[str, Json], kind: CustomResourceKind) -> Iterator[Problem]:
    for error in _validator(kind).iter_errors(data):
        yield Problem(tuple(error.absolute_path), _describe(error))
    spec = data.get("spec")
    config = spec.get("config") if isinstance(spec, dict) else None
    for name, value in config.items() if isinstance(config, dict) else ():
        if not isinstance(value, str | int | float):
            message = f"a setting is a string, a number or a boolean, not {_quote(value)}"
            yield Problem(("spec", "config", name), message)


FORMS: Final = {
    DURATION: "a duration, such as 500ms, 30s or 10 minutes",
    QUANTITY: "a quantity, such as 500m or 10Gi",
    IDENTIFIER: "an SQL identifier: letters, digits and _, not starting with a digit",
    TOPIC_NAME: "a topic name: letters, digits, '.', '_' and '-'",
    OBJECT_NAME: "a Kubernetes object name: lower-case letters, digits, '-' and '.'",
    STARTING_OFFSETS: "earliest, latest or a time, such as 2026-11-23T08:00:00Z",
    TIME: "a time, such as 2026-11-23T08:00:00Z",
    TENANT: "a tenant's name: lower-case letters, digits and '-', a letter or digit first and last",
    LISTENER_NAME: "a listener's name: lower-case letters and digits, a letter first",
    WEB_URL: "an http or https URL without query and fragment",
    ENDPOINT_URL: "a URL without a path, such as https://minio.example.com:9000",
    MESSAGE_NAME: "the name of a Protobuf message, such as shop.Order",
    CATALOG_URI: "a JDBC URL of SQLite or PostgreSQL, or an http or https URL",
    ICEBERG_TABLE: "a table's name in the form catalog.database.table",
    PARTITION_FIELD: "a column, or years, months, days, hours or bucket of one, such as days(scheduled)",
    JDBC_URL: "a JDBC URL of PostgreSQL, such as jdbc:postgresql://db.example.com:5432/flights",
    JDBC_TABLE: "a table's name: table or schema.table",
    PYTHON_NAME: "a Python file and a function or class in it, such as steps.py:score",
}
"""What each pattern of a spec describes."""
_TYPES: Final = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_UNITS: Final = {"Length": ("character", "characters"), "Items": ("item", "items"), "Properties": ("entry", "entries")}
"""What bounds like minLength and maxItems count: one, several."""


def _describe(error: ValidationError) -> str:
    value = _quote(error.instance)
    allowed: Any = error.validator_value
    match error.validator:
        case "type":
            fields = error.schema.get("properties") if isinstance(error.schema, dict) else None
            return f"{value} is not {_TYPES[allowed]}" + (f"; its fields: {', '.join(fields)}" if fields else "")
        case "enum":
            words = [str(word) for word in allowed]
            return f"{value} is none of {', '.join(words)}{did_you_mean(str(error.instance), words)}"
        case "required":
            present: Any = error.instance
            missing = [name for name in allowed if name not in present]
            return f"{' and '.join(map(repr, missing))} {'is' if len(missing) == 1 else 'are'} required"
        case "pattern":
            return f"{value} is not {FORMS.get(allowed, allowed)}"
        case "minimum" if isinstance(error.schema, dict) and error.schema.get("exclusiveMinimum"):
            return f"{value} is too small; must be greater than {allowed}"
        case "minimum":
            return f"{value} is too small; must be at least {allowed}"
        case "maximum":
            return f"{value} is too large; must be at most {allowed}"
        case "minLength" | "minItems" | "minProperties":
            return f"{value} is too short; must have at least {_count(allowed, error.validator)}"
        case "maxLength" | "maxItems" | "maxProperties":
            return f"{value} is too long; must have at most {_count(allowed, error.validator)}"
        case "anyOf":
            return f"{value} is neither an integer nor a string"
        case _:
            return error.message


def _count(bound: int, keyword: str) -> str:
    """`bound` with its unit. `keyword`: minLength and the like."""
    one, several = _UNITS[keyword[3:]]
    return f"{bound} {one if bound == 1 else several}"


def _quote(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str() if len(value) > 60:
            return repr(value[:57] + "…")
        case _:
            return repr(value)
