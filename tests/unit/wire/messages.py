"""Hypothesis strategies for every message that kio declares, from the schemas that the codec
uses.
"""

import datetime
from functools import cache
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

from ottla_broker.wire.message_schema import EPOCH, NO_UUID, FieldSchema, MessageSchema, schema_of


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": st.integers(0, 65535),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.uuids().filter(lambda value: value != NO_UUID),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _integers(32).map(lambda value: datetime.timedelta(milliseconds=value)),
    "timedelta_i64": st.integers(-(1 << 40), 1 << 40).map(lambda value: datetime.timedelta(milliseconds=value)),
    "datetime_i64": st.integers(0, 1 << 40).map(lambda value: EPOCH + datetime.timedelta(milliseconds=value)),
}


@cache
def instances(cls: type) -> st.SearchStrategy[Any]:
    """Any value of a kio class."""
    return _instances(schema_of(cls))


@cache
def _instances(schema: MessageSchema) -> st.SearchStrategy[Any]:
    return st.builds(schema.cls, **{field.name: _field(field) for field in schema.all_fields})


def _field(field: FieldSchema) -> st.SearchStrategy[Any]:
    values = _instances(field.entity) if field.entity is not None else _VALUES[field.kind]
    if field.array:
        values = st.lists(values, max_size=3).map(tuple)
    # A tagged field that is null is left out of the message.
    return st.none() | values if field.nullable and field.tag is None else values


def every_message() -> list[tuple[int, int, type, type]]:
    """(API key, version, request class, response class) of all messages that kio knows."""
    return [
        (key, version, load_request_schema(key, version), load_response_schema(key, version))
        for key, name in sorted(api_key_map.items())
        for version in sorted(schema_name_map[name])
    ]
