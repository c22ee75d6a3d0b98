"""Kubernetes structural schemas from the resources' types.

In a structural schema every node has one type, there are no references, and unknown fields are
pruned, so `additionalProperties: false` is not allowed. Nothing is defaulted.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

import types
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from msgspec import Meta, structs

from ottla_operator.resources.model import Json, Model, Rule, Transition

JsonSchema = dict[str, Json]

_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LENGTHS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def structural_schema(model: type[Model]) -> JsonSchema:
    """Schema of a model, with its rules as x-kubernetes-validations."""
    fields = structs.fields(model)
    schema: JsonSchema = {
        "type": "object",
        "description": model.__doc__,
        "properties": {field.encode_name: _schema(field.type) for field in fields},
    }
    if required := [field.encode_name for field in fields if field.required]:
        schema["required"] = required
    if validations := [_validation(rule) for rule in model.rules if rule.cel]:
        schema["x-kubernetes-validations"] = validations
    return schema


def nested_model(annotation: Any) -> tuple[type[Model] | None, bool]:
    """The model in a field of type `M`, `M | None`, `list[M]` or `dict[str, M]`, and whether it is
    a dict's value.
    """
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation, False
    for argument in get_args(annotation):
        model, is_value = nested_model(argument)
        if model:
            return model, is_value or get_origin(annotation) is dict
    return None, False


def _schema(annotation: Any) -> JsonSchema:
    arguments = get_args(annotation)
    match get_origin(annotation):
        case None if annotation in _SCALARS:
            return {"type": _SCALARS[annotation]}
        case None:
            return structural_schema(annotation)
        case origin if origin is Annotated:
            schema = _schema(arguments[0])
            for meta in arguments[1:]:
                schema |= _keywords(meta, schema)
            return schema
        case origin if origin in (Union, types.UnionType):
            members = [_schema(member) for member in arguments if member is not type(None)]
            return members[0] if len(members) == 1 else {"anyOf": members}
        case origin if origin is Literal:
            return {"type": "string", "enum": list(arguments)}
        case origin if origin is dict:
            return {"type": "object"} | ({} if arguments[1] is Any else {"additionalProperties": _schema(arguments[1])})
        case _:
            return {"type": "array", "items": _schema(arguments[0])}


def _keywords(meta: Meta, schema: JsonSchema) -> JsonSchema:
    """OpenAPI v3.0: an exclusive bound is a flag beside the bound."""
    shortest, longest = _LENGTHS.get(schema.get("type", ""), ("", ""))
    keywords = {
        "description": meta.description,
        "pattern": meta.pattern,
        shortest: meta.min_length,
        longest: meta.max_length,
        "minimum": meta.ge if meta.gt is None else meta.gt,
        "exclusiveMinimum": None if meta.gt is None else True,
        "maximum": meta.le,
    }
    return {name: value for name, value in keywords.items() if value is not None} | (meta.extra_json_schema or {})


def _validation(rule: Rule | Transition) -> JsonSchema:
    field = {"fieldPath": f".{rule.field}"} if rule.field else {}
    return {"rule": rule.cel, "message": rule.message} | field
