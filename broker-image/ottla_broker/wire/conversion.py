"""Turns a message of one version into the same message of another.

Handlers know one version of each message, the anchor of their form. Fields are matched by name: what the other
version does not have is dropped, what the first did not have gets its default. Where versions differ in kind and not
in fields (one group became a list of groups) an API declares several forms instead.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from ottla_broker.wire.message_schema import FieldSchema, schema_of

Convert = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def convert_message(message: Any, target: type) -> Any:
    """`message` as a `target`, another version of the same kio message."""
    source = message.__class__
    return message if source is target else converter(source, target)(message)


@cache
def converter(source: type, target: type) -> Convert:
    """A function from `source` to `target`, two versions of one kio message; made once per pair."""
    if source is target:
        return _same
    known = {field.name: field for field in schema_of(source).all_fields}
    steps = []
    defaults = {}
    for field in schema_of(target).all_fields:
        if field.name in known and _alike(known[field.name], field):
            steps.append((field.name, _field_converter(known[field.name], field)))
        else:
            defaults[field.name] = field.default

    def convert(message: Any) -> Any:
        return target(**defaults, **{name: step(getattr(message, name)) for name, step in steps})

    return convert


def _alike(source: FieldSchema, target: FieldSchema) -> bool:
    return source.kind == target.kind and source.array == target.array


def _field_converter(source: FieldSchema, target: FieldSchema) -> Convert:
    convert: Convert = _same
    if source.entity is not None and target.entity is not None:
        convert = converter(source.entity, target.entity)
    if source.array and convert is not _same:
        convert = _each(convert)
    if not source.nullable or (target.nullable and convert is _same):
        return convert
    absent = None if target.nullable else target.default  # a version that had no null meant the default by it
    return lambda value: absent if value is None else convert(value)


def _each(convert: Convert) -> Convert:
    return lambda values: tuple([convert(value) for value in values])
