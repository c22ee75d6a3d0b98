"""The CRD reference: a page of Markdown with a table for each object in the resources."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ottla_operator.resources.common import API_VERSION, DURATION, IDENTIFIER, OBJECT_NAME, QUANTITY, TOPIC_NAME
from ottla_operator.resources.crds import KINDS, CustomResourceKind, openapi_schema
from ottla_operator.resources.schema import JsonSchema

_INTRODUCTION: Final = f"""\
# Custom resources

Reference of the kinds in `{API_VERSION}`, generated from the operator's types by
`python -m ottla_operator.crd_files`. All kinds are namespaced and in the category `ottla`
(`kubectl get ottla`). `ottla up` reads the same resources.

The CRDs set no defaults in specs: the API server stores what was applied, and the column *Default* says what applies
to a field that is not set. Required fields are **bold**. Rules are validated by the API server (CEL), and by
`ottla up` and the operator.
"""
_DEFAULT: Final = re.compile(r"\s*Defaults to (?P<default>.+)\.$")
_ESCAPED_BAR: Final = r"\|"
_RANGES: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " entries"),
)
_TYPE_NAMES: Final = {
    DURATION: "duration (`30s`, `10 minutes`)",
    QUANTITY: "quantity (`500m`, `10Gi`)",
    TOPIC_NAME: "topic name",
    OBJECT_NAME: "object name",
    IDENTIFIER: "SQL identifier",
}


def render_reference() -> str:
    return "\n".join([_INTRODUCTION, *(line for kind in KINDS for line in _kind(kind))])


def _kind(kind: CustomResourceKind) -> Iterator[str]:
    schema = openapi_schema(kind)
    yield from (f"## {kind.name}", "", schema["description"], "")
    yield from (f"Plural `{kind.plural}`, short name `{kind.short_name}`.", "")
    for part in ("spec", "status"):
        unchecked = [rule.message for rule in kind.spec.rules if rule.cel is None] if part == "spec" else []
        yield from _object(f"{kind.name} {part}", schema["properties"][part], unchecked)


def _object(title: str, schema: JsonSchema, operator_rules: Sequence[str] = ()) -> Iterator[str]:
    """Heading, table and rules of an object, then those of the objects in it."""
    yield from (f"### {title}", "", schema["description"], "")
    yield from ("| Field | Type | Default | Allowed | Description |", "|---|---|---|---|---|")
    nested: list[tuple[str, JsonSchema]] = []
    for name, field in schema["properties"].items():
        label = f"**`{name}`**" if name in schema.get("required", ()) else f"`{name}`"
        text = field.get("description", "")
        default = _DEFAULT.search(text)
        default_text = default["default"] if default else ""
        cells = (label, _type(field), default_text, _allowed(field), _DEFAULT.sub("", text))
        yield f"| {' | '.join(cell.replace('|', _ESCAPED_BAR) for cell in cells)} |"
        suffix, inner = _inner_object(field)
        if inner:
            nested.append((f"{title}.{name}{suffix}", inner))
    yield ""
    rules = [f"- {it['message']}: `{it['rule']}`" for it in schema.get("x-kubernetes-validations", ())]
    rules += [f"- {message} (validated by the operator and `ottla up` only)" for message in operator_rules]
    if rules:
        yield from ("Rules:", "", *rules, "")
    for path, inner in nested:
        yield from _object(path, inner)


def _inner_object(field: JsonSchema) -> tuple[str, JsonSchema | None]:
    """The object in a field, a list or a map, and how its path continues. None if there is none."""
    if "properties" in field:
        return "", field
    for key, suffix in (("items", "[]"), ("additionalProperties", ".<name>")):
        if isinstance(inner := field.get(key), dict) and "properties" in inner:
            return suffix, inner
    return "", None


def _type(field: JsonSchema) -> str:
    if field.get("pattern") in _TYPE_NAMES:
        return _TYPE_NAMES[field["pattern"]]
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(values := field.get("additionalProperties"), dict):
        return f"map to {_type(values) if 'type' in values or 'anyOf' in values else 'string, number or boolean'}"
    return "date and time" if field.get("format") == "date-time" else str(field["type"])


def _allowed(field: JsonSchema) -> str:
    choices = field.get("enum") or field.get("items", {}).get("enum")
    if choices:
        return ", ".join(f"`{value}`" for value in choices)
    if field.get("pattern") in _TYPE_NAMES:
        return ""
    ranges = [_range(field.get(low), field.get(high), unit, field) for low, high, unit in _RANGES]
    pattern = f"`{field['pattern']}`" if "pattern" in field else ""
    return ", ".join(filter(None, [*ranges, pattern]))


def _range(low: float | None, high: float | None, unit: str, field: JsonSchema) -> str:
    if low is not None and field.get("exclusiveMinimum"):
        return f"above {low}, at most {high}"
    if low is not None and high is not None:
        return f"{low} to {high}{unit}"
    if low is not None:
        return f"at least {low}{unit}"
    return f"at most {high}{unit}" if high is not None else ""
