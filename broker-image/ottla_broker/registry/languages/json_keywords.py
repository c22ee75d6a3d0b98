"""Compares single keywords of a reader's and a writer's JSON Schema: types, values, and bounds of
numbers and lengths. Pure.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from ottla_broker.registry.languages.incompatibility import Incompatibility

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
UNCOMPARABLE: Final = (
    "not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas", "contains", "minContains",
    "maxContains", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "pattern",
)  # fmt: skip
"""Keywords that a new reader may drop, but not add or change: what two values of them accept cannot
be compared.
"""
KEYWORDS_OF_TYPE: Final = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains",
              "minContains", "maxContains", "unevaluatedItems"),
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties",
               "dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties"),
}  # fmt: skip

Incompatibilities = list[Incompatibility]


def incompatibility(kind: str, description: str, path: str, subject: str = "") -> Incompatibility:
    return Incompatibility(kind, f"{description} at path '{path}'", path, subject)


def types_of(schema: dict[str, Any]) -> list[str]:
    """The types that `type` allows; all without it."""
    types = schema.get("type", TYPES)
    return [types] if isinstance(types, str) else list(types)


def has_combination(schema: dict[str, Any]) -> bool:
    return "anyOf" in schema or "oneOf" in schema or "allOf" in schema


def accepts_type(types: list[str], one: str) -> bool:
    return one in types or (one == "integer" and "number" in types)


def type_name(value: object) -> str:
    """The type of a JSON value in JSON Schema."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def compare_types(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Incompatibilities:
    written = accepted_types(writer)
    missing = [one for one in written if not accepts_type(types_of(reader), one)]
    if not missing:
        return []
    is_changed = not any(accepts_type(types_of(reader), one) for one in written)
    text = f"The type {missing} of the old schema is not accepted by the new schema"
    return [incompatibility("TYPE_CHANGED" if is_changed else "TYPE_NARROWED", text, path, ", ".join(missing))]


def accepted_types(writer: dict[str, Any]) -> list[str]:
    """The types of the values that the writer accepts, by its type, enum and const."""
    values, types = values_of(writer), types_of(writer)
    if values is None:
        return types
    return sorted({type_name(value) for value in values if accepts_type(types, type_name(value))})


def add_bounds_of_values(writer: dict[str, Any]) -> dict[str, Any]:
    """Adds the bounds of the values of an enum or const: the range of its numbers and the lengths
    of its strings.
    """
    values = values_of(writer)
    if values is None:
        return writer
    numbers = [value for value in values if type_name(value) in ("integer", "number")]
    lengths = [len(value) for value in values if isinstance(value, str)]
    bounds: dict[str, Any] = {"minimum": min(numbers), "maximum": max(numbers)} if numbers else {}
    return writer | bounds | ({"minLength": min(lengths), "maxLength": max(lengths)} if lengths else {})


def values_of(schema: dict[str, Any]) -> list[Any] | None:
    """The values that const or enum allows; None without them."""
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def compare_values(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Incompatibilities:
    lists = [[reader["const"]]] if "const" in reader else []
    lists += [reader["enum"]] if "enum" in reader else []
    written = values_of(writer)
    if not lists or written == []:
        return []
    missing = None if written is None else [one for one in written if not all(contains(it, one) for it in lists)]
    if missing == []:
        return []
    which = "every value" if missing is None else f"the values {missing}"
    return [incompatibility("ENUM_ARRAY_NARROWED", f"The new schema refuses {which} of the old schema", path)]


def contains(values: list[Any], value: Any) -> bool:
    """True if the values have an equal one. In JSON, true and 1 differ."""
    return any(one == value and isinstance(one, bool) == isinstance(value, bool) for one in values)


def compare_numbers(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Incompatibilities:
    found = []
    for keyword, limit, other in (
        ("minimum", lower_bound(reader), lower_bound(writer)),
        ("maximum", upper_bound(reader), upper_bound(writer)),
    ):
        if limit is not None and (other is None or other < limit):
            change = "ADDED" if other is None else "INCREASED" if keyword == "minimum" else "DECREASED"
            found.append(
                incompatibility(f"{keyword.upper()}_{change}", f"The {keyword} is stricter in the new schema", path)
            )
    step, written = reader.get("multipleOf"), writer.get("multipleOf")
    if step and not (step == 1 and types_of(writer) == ["integer"]) and (not written or written % step):
        found.append(incompatibility("MULTIPLE_OF_CHANGED", "multipleOf is stricter in the new schema", path))
    return found


def lower_bound(schema: dict[str, Any]) -> tuple[float, bool] | None:
    """The minimum, and True if it is exclusive: of two bounds the greater is stricter. None if
    there is no minimum.
    """
    return bound(schema, "minimum", "exclusiveMinimum", lambda value: value)


def upper_bound(schema: dict[str, Any]) -> tuple[float, bool] | None:
    """The maximum as its negative, so that of two bounds the greater is stricter, and True if it is
    exclusive. None if there is no maximum.
    """
    return bound(schema, "maximum", "exclusiveMaximum", lambda value: -value)


def bound(
    schema: dict[str, Any], keyword: str, exclusive: str, order: Callable[[float], float]
) -> tuple[float, bool] | None:
    """The stricter one of the bounds in two keywords. `order`: makes the stricter limit the
    greater.
    """
    limit, beyond = schema.get(keyword), schema.get(exclusive)
    if isinstance(beyond, bool):  # draft 4
        return None if limit is None else (order(limit), beyond)
    bounds = [(order(limit), False)] if limit is not None else []
    if beyond is not None:
        bounds.append((order(beyond), True))
    return max(bounds) if bounds else None


def compare_bounds(
    reader: dict[str, Any], writer: dict[str, Any], path: str, what: str, kind: str
) -> Incompatibilities:
    """Compares the keywords `min…` and `max…` of `what`: Length, Items or Properties."""
    found = []
    most, least = reader.get(f"max{what}"), reader.get(f"min{what}", 0)
    if most is not None and writer.get(f"max{what}", float("inf")) > most:
        change = "DECREASED" if f"max{what}" in writer else "ADDED"
        found.append(
            incompatibility(f"MAX_{what.upper()}_{change}", f"The largest {kind} is smaller in the new schema", path)
        )
    if writer.get(f"min{what}", 0) < least:
        change = "INCREASED" if f"min{what}" in writer else "ADDED"
        found.append(
            incompatibility(f"MIN_{what.upper()}_{change}", f"The smallest {kind} is larger in the new schema", path)
        )
    return found


def find_changed_keywords(
    reader: dict[str, Any], writer: dict[str, Any], types: list[str], path: str
) -> Iterator[Incompatibility]:
    """Keywords of UNCOMPARABLE that the reader has and the writer lacks or has with another value,
    without those of types that the writer does not accept.
    """
    of_other_types = {
        name
        for kind, names in KEYWORDS_OF_TYPE.items()
        if kind not in types and not (kind == "number" and "integer" in types)
        for name in names
    }
    for keyword in UNCOMPARABLE:
        if keyword in reader and keyword not in of_other_types and reader[keyword] != writer.get(keyword):
            text = f"The keyword {keyword} is not that of the old schema"
            yield incompatibility(f"{keyword.upper()}_CHANGED", text, f"{path}/{keyword}", keyword)


def tuple_items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, one each, and the schema of all others."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    return (items, schema.get("additionalItems", True)) if isinstance(items, list) else ([], items)


def merge_keyword(name: str, one: Any, other: Any) -> Any:
    """A value of the keyword that accepts everything that `one` and `other` both accept. It may
    accept more.
    """
    match name:
        case "required":
            return list(dict.fromkeys((*one, *other)))
        case "properties":
            merged = dict(one)
            for key, value in other.items():
                merged[key] = {"allOf": [merged[key], value]} if key in merged else value
            return merged
        case "type":
            types = [it for it in types_of({"type": one}) if accepts_type(types_of({"type": other}), it)]
            others = [it for it in types_of({"type": other}) if accepts_type(types_of({"type": one}), it)]
            return list(dict.fromkeys((*types, *others)))
        case "enum":
            return [value for value in one if value in other]
        case "additionalProperties":
            return other if one is True else one
    return one
