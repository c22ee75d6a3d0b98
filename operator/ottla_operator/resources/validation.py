"""What is wrong with a resource, in words: unknown fields, the CRD's schema, then the rules.

The API server would refuse the same things; here each finding names the path of the field, the value, what is allowed
and, for a
misspelling, the likely word. Pure: plain JSON in, problems out.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, cast, get_args, get_origin

from jsonschema import Draft4Validator
from jsonschema.exceptions import ValidationError

from ottla_operator.resources.common import API_VERSION, DURATION, IDENTIFIER, OBJECT_NAME, QUANTITY, TOPIC_NAME
from ottla_operator.resources.crds import KINDS, Kind, openapi_schema
from ottla_operator.resources.model import Json, Model, Rule, Transition
from ottla_operator.resources.pipeline import PYTHON_STEP
from ottla_operator.resources.schema import Schema

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """`path`: from the object's root to the field, such as ("spec", "sinks", 0, "from")."""

    path: FieldPath
    message: str

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}" if self.path else self.message


def format_path(path: FieldPath) -> str:
    """spec.sinks[0].from"""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing when no known word is near."""
    by_small = {it.lower(): it for it in known}
    near = get_close_matches(word.lower(), by_small, n=1, cutoff=0.6)
    return f"; did you mean {by_small[near[0]]!r}?" if near else ""


def find_kind(name: str) -> Kind | None:
    return next((kind for kind in KINDS if kind.name == name), None)


def validate_resource(data: Json) -> list[Problem]:
    """Everything that is wrong with one resource, first things first; empty when it is good."""
    if not isinstance(data, dict):
        return [Problem((), f"a resource is an object with apiVersion, kind, metadata and spec, not {_said(data)}")]
    if data.get("apiVersion") != API_VERSION:
        return [Problem(("apiVersion",), f"{_said(data.get('apiVersion'))} is not known here; write {API_VERSION}")]
    kind = find_kind(str(data.get("kind")))
    if kind is None:
        names = [it.name for it in KINDS]
        hint = did_you_mean(str(data.get("kind")), names)
        return [Problem(("kind",), f"{_said(data.get('kind'))} is none of {', '.join(names)}{hint}")]
    found = [*_metadata(data), *_unknown(data, _schema(kind), ()), *_structure(data, kind)]
    if not found:
        found = list(find_broken_rules(kind.spec, data["spec"], ("spec",)))
    return found


def validate_update(new: dict[str, Json], old: dict[str, Json]) -> list[Problem]:
    """What cannot be changed from `old` to `new`; both are good resources of the same kind and name."""
    kind = find_kind(new["kind"])
    assert kind is not None
    return list(find_broken_rules(kind.spec, new["spec"], ("spec",), old["spec"]))


def find_broken_rules(model: type[Model], data: Json, path: FieldPath, old: Json | None = None) -> Iterator[Problem]:
    """Without `old`: the rules that `data` breaks. With it: those that the change from `old` breaks."""
    if not isinstance(data, dict):
        return
    for rule in model.rules:
        match rule:
            case Rule() if old is None:
                found = None if rule.holds(data) else rule.found(data)
            case Transition() if old is not None:
                found = None if rule.holds(data, old) else rule.found(data, old)
            case _:
                continue
        if found is not None:
            message = f"{rule.message}; {found}" if found else rule.message
            yield Problem((*path, rule.field) if rule.field else path, message)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in data or not (inner := _model_in(annotation := cast(Hashable, field.annotation))):
            continue
        value, before = data[key], old.get(key) if old else None
        for step, item in _items(value, annotation):
            was = before if step is None else before.get(step) if isinstance(before, dict) else None
            if old is None or was is not None:
                yield from find_broken_rules(inner, item, (*path, key) if step is None else (*path, key, step), was)


def _items(value: Json, annotation: Hashable) -> Iterator[tuple[str | int | None, Json]]:
    if isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, dict) and _holds_map(annotation):
        yield from value.items()
    else:
        yield None, value


@cache
def _model_in(annotation: Hashable) -> type[Model] | None:
    """The model that a field's type holds: `M`, `M | None`, `list[M]`, `dict[str, M]`, annotated or not."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    return next((found for argument in get_args(annotation) if (found := _model_in(argument))), None)


@cache
def _holds_map(annotation: Hashable) -> bool:
    return get_origin(annotation) is dict or any(_holds_map(argument) for argument in get_args(annotation))


@cache
def _schema(kind: Kind) -> Schema:
    return openapi_schema(kind)


@cache
def _validator(kind: Kind) -> Draft4Validator:
    """OpenAPI v3.0 is JSON Schema's draft 4 where it matters: exclusiveMinimum is a flag."""
    return Draft4Validator(_schema(kind))


def _metadata(data: dict[str, Json]) -> Iterator[Problem]:
    metadata = data.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        yield Problem(("metadata",), "a resource needs metadata.name")
    elif not _OBJECT_NAME.is_valid(metadata["name"]):
        yield Problem(
            ("metadata", "name"),
            f"{metadata['name']!r} is no name for Kubernetes: small letters, digits, '-' and '.', at most 253 of them",
        )


_OBJECT_NAME = Draft4Validator({"type": "string", "maxLength": 253, "pattern": OBJECT_NAME})


def _unknown(data: Json, schema: Schema, path: FieldPath) -> Iterator[Problem]:
    """Fields that the schema does not know. The API server drops them in silence, unless kubectl asks it not to."""
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield from _unknown(item, schema.get("items", {}), (*path, index))
    if not isinstance(data, dict) or schema.get("x-kubernetes-preserve-unknown-fields") or path == ("metadata",):
        return
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    for key, value in data.items():
        if not isinstance(key, str):
            yield Problem(path, f"the key {key!r} is not text; put quotes around it")
        elif properties and key in properties:
            yield from _unknown(value, properties[key], (*path, key))
        elif isinstance(rest, dict):
            yield from _unknown(value, rest, (*path, key))
        elif properties is not None:
            hint = did_you_mean(key, properties) or f"; known here: {', '.join(properties)}"
            yield Problem((*path, key), f"there is no such field{hint}")


def _structure(data: Json, kind: Kind) -> Iterator[Problem]:
    for error in _validator(kind).iter_errors(data):
        yield Problem(tuple(error.absolute_path), _sentence(error))
    for path, values in _settings(data):
        for name, value in values.items():
            if not isinstance(value, str | int | float):
                yield Problem((*path, name), f"a setting is a string, a number or a boolean, not {_said(value)}")


def _settings(data: Json) -> Iterator[tuple[FieldPath, dict[str, Json]]]:
    spec = data.get("spec")
    if isinstance(spec, dict) and isinstance(config := spec.get("config"), dict):
        yield ("spec", "config"), config


_FORMS = {
    DURATION: "a length of time, such as 500ms, 30s or 10 minutes",
    QUANTITY: "an amount, such as 500m or 10Gi",
    IDENTIFIER: "a name in SQL: letters, digits and _, not beginning with a digit",
    TOPIC_NAME: "a name of a topic: letters, digits, '.', '_' and '-'",
    OBJECT_NAME: "a name for Kubernetes: small letters, digits, '-' and '.'",
    PYTHON_STEP: "a file and a function of it, such as steps.py:score",
}


def _sentence(error: ValidationError) -> str:
    said = _said(error.instance)
    allowed: Any = error.validator_value
    match error.validator:
        case "type":
            return f"{said} is not {_article(allowed)}"
        case "enum":
            words = [str(word) for word in allowed]
            return f"{said} is none of {', '.join(words)}{did_you_mean(str(error.instance), words)}"
        case "required":
            there: Any = error.instance
            missing = [name for name in allowed if name not in there]
            return f"{' and '.join(repr(name) for name in missing)} {'is' if len(missing) == 1 else 'are'} missing"
        case "pattern":
            return (
                f"{said} is not {_FORMS[allowed]}" if allowed in _FORMS else f"{said} does not have the form {allowed}"
            )
        case "minimum" if isinstance(error.schema, dict) and error.schema.get("exclusiveMinimum"):
            return f"{said} is too small; more than {allowed}"
        case "minimum":
            return f"{said} is too small; at least {allowed}"
        case "maximum":
            return f"{said} is too large; at most {allowed}"
        case "minLength" | "minItems" | "minProperties":
            return f"{said} is too short; at least {allowed}"
        case "maxLength" | "maxItems" | "maxProperties":
            return f"{said} is too long; at most {allowed}"
        case "anyOf":
            return f"{said} is neither a whole number nor text"
        case _:
            return error.message


def _article(kind: str) -> str:
    return {
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "boolean": "true or false",
        "array": "a list",
        "object": "an object",
    }[kind]


def _said(value: Json) -> str:
    match value:
        case None:
            return "nothing"
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
