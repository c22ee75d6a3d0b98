"""Evaluation of the models' rules in Python, on plain JSON."""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from ottla_operator.resources.model import Json, Model, Rule, Transition
from ottla_operator.resources.schema import nested_model

FieldPath = tuple[str | int, ...]
"""Keys from the root of a resource to a field: ("spec", "sinks", 0, "from")."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a field of a resource."""

    path: FieldPath
    message: str

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}" if self.path else self.message


def format_path(path: FieldPath) -> str:
    """Formats a path, such as spec.sinks[0].from."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def find_broken_rules(model: type[Model], data: Json, path: FieldPath, old: Json | None = None) -> Iterator[Problem]:
    """Rules that `data` breaks; with `old`, transition rules that the update from `old` breaks.
    `data` and `old` match the model's schema.
    """
    if not isinstance(data, dict):
        return
    for rule in model.rules:
        match rule:
            case Rule() if old is None:
                detail = None if rule.holds(data) else rule.detail(data)
            case Transition() if old is not None:
                detail = None if rule.holds(data, old) else rule.detail(data, old)
            case _:
                continue
        if detail is not None:
            message = f"{rule.message}; {detail}" if detail else rule.message
            yield Problem((*path, rule.field) if rule.field else path, message)
    for field in structs.fields(model):
        nested, is_dict_value = nested_model(field.type)
        if nested is None or field.encode_name not in data:
            continue
        value, before = data[field.encode_name], old.get(field.encode_name) if old else None
        for keys, item in _items(value, is_dict_value):
            previous = before.get(*keys) if keys and isinstance(before, dict) else None if keys else before
            if old is None or previous is not None:
                yield from find_broken_rules(nested, item, (*path, field.encode_name, *keys), previous)


def _items(value: Json, is_dict_value: bool) -> Iterator[tuple[FieldPath, Json]]:
    """The objects in a field's value, each with the index or key that leads to it."""
    if isinstance(value, list):
        yield from (((index,), item) for index, item in enumerate(value))
    elif isinstance(value, dict) and is_dict_value:
        yield from (((key,), item) for key, item in value.items())
    else:
        yield (), value
