"""Converts a message of one version into the same message of another version.

A handler is written for one version of its message, the anchor. Fields are matched by name and
type: fields that the target version does not have are dropped, fields that the source version does
not have get their defaults. Where versions differ in more than fields (one group became a list of
groups), an API declares several handlers.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from ottla_broker.wire.message_schema import FieldSchema, schema_of

Convert = Callable[[Any], Any]


def convert_message(message: Any, target: type) -> Any:
    """`message` as a `target`, another version of the same kio message."""
    source = message.__class__
    return message if source is target else _converter(source, target)(message)


@cache
def _converter(source: type, target: type) -> Convert:
    """A function from `source` to `target`, two versions of one kio message; built once per
    pair.
    """
    if source is target:
        return _identity
    source_fields = {field.name: field for field in schema_of(source).all_fields}
    steps = []
    defaults = {}
    for field in schema_of(target).all_fields:
        match = source_fields.get(field.name)
        if match is not None and (match.kind, match.array) == (field.kind, field.array):
            steps.append((field.name, _field_converter(match, field)))
        else:
            defaults[field.name] = field.default

    def convert(message: Any) -> Any:
        return target(**defaults, **{name: step(getattr(message, name)) for name, step in steps})

    return convert


def _identity(value: Any) -> Any:
    return value


def _field_converter(source: FieldSchema, target: FieldSchema) -> Convert:
    convert: Convert = _identity
    if source.entity is not None and target.entity is not None:
        convert = _converter(source.entity.cls, target.entity.cls)
    if source.array and convert is not _identity:
        convert = _array_converter(convert)
    if not source.nullable or (target.nullable and convert is _identity):
        return convert
    null = None if target.nullable else target.default  # a version without null has the default instead
    return lambda value: null if value is None else convert(value)


def _array_converter(convert: Convert) -> Convert:
    return lambda values: tuple([convert(value) for value in values])
