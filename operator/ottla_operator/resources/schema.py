"""From typed models to Kubernetes' structural schemas.

Pydantic writes JSON Schema with references, nulls, titles and defaults. A structural schema has none of these: every
node says its type
once, references are written out, unknown fields are pruned (so `additionalProperties: false` is not allowed), and nothing is defaulted
(kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions, "Specifying a structural schema").
"""

import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

from ottla_operator.resources.model import Json, Model, Rule, Transition

Schema = dict[str, Json]

_DROPPED = frozenset({"title", "default", "$defs"})


def structural(model: type[Model]) -> Schema:
    """The structural schema of one model, with its rules as x-kubernetes-validations."""
    whole = model.model_json_schema(by_alias=True)
    rules = {found.__name__: found.rules for found in models_within(model) if found.rules}
    return _node(whole, whole.get("$defs", {}), rules, model.__name__)


def models_within(model: type[Model]) -> Iterator[type[Model]]:
    """The model and every model that its fields hold, each once."""
    seen: set[type[Model]] = set()
    waiting = [model]
    while waiting:
        if (current := waiting.pop()) in seen:
            continue
        seen.add(current)
        yield current
        for field in current.model_fields.values():
            waiting += _models_in(field.annotation)


def _models_in(annotation: Any) -> list[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, list, dict, tuple) or hasattr(annotation, "__metadata__"):
        return [found for argument in get_args(annotation) for found in _models_in(argument)]
    return []


def _node(
    node: Schema, definitions: dict[str, Schema], rules: dict[str, tuple[Rule | Transition, ...]], name: str | None
) -> Schema:
    if reference := node.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        node = {**definitions[name], **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
        (only,) = (branch for branch in node["anyOf"] if branch != {"type": "null"})
        return _node(
            {**only, **{key: value for key, value in node.items() if key != "anyOf"}}, definitions, rules, name
        )
    if node.get("x-kubernetes-int-or-string"):
        node = {key: value for key, value in node.items() if key != "type"}
    made: Schema = {}
    for key, value in node.items():
        match key:
            case "properties":
                made[key] = {field: _node(inner, definitions, rules, None) for field, inner in value.items()}
            case "items":
                made[key] = _node(value, definitions, rules, None)
            case "additionalProperties":
                if isinstance(value, dict):
                    made[key] = _node(value, definitions, rules, None)
            case "const":
                made["enum"] = [value]
            case "exclusiveMinimum" | "exclusiveMaximum":  # OpenAPI v3.0: a flag beside the bound
                made[key.removeprefix("exclusive").lower()] = value
                made[key] = True
            case "format" if value in ("date-time", "int32", "int64"):
                made[key] = value
            case _ if key not in _DROPPED and key != "format":
                made[key] = value
    if said := [_validation(rule) for rule in rules.get(name or "", ()) if rule.cel]:
        made["x-kubernetes-validations"] = said
    return made


def _validation(rule: Rule | Transition) -> Schema:
    made: Schema = {"rule": rule.cel, "message": rule.message}
    if rule.field:
        made["fieldPath"] = f".{rule.field}"
    return made
