"""Types of rows with strategies of their values, as a decoder returns them: structs are tuples."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as T

Typed = tuple[T.DataType, st.SearchStrategy[Any]]

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS: tuple[Typed, ...] = (
    (T.BooleanType(), st.booleans()),
    (T.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (T.DoubleType(), st.floats(allow_nan=False, allow_infinity=False)),
    (T.StringType(), TEXT),
    (T.BinaryType(), st.binary()),
    (T.TimestampType(), st.datetimes(timezones=st.just(datetime.UTC))),
    (T.DateType(), st.dates()),
)


def row_types(names: str = "c{}") -> st.SearchStrategy[tuple[T.StructType, st.SearchStrategy[Any]]]:
    """Types of rows, each with a strategy of such rows. `names`: format of the names of columns,
    which their index fills.
    """

    def structs(typed: st.SearchStrategy[Typed]) -> st.SearchStrategy[Any]:
        return st.lists(typed, min_size=1, max_size=4).map(lambda fields: _struct(fields, names))

    def nested(typed: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
        lists = typed.map(lambda it: (T.ArrayType(it[0]), st.lists(st.none() | it[1], max_size=3)))
        return structs(typed) | lists | typed.map(_map)

    return structs(st.recursive(st.sampled_from(SCALARS), nested, max_leaves=5))


def _struct(fields: list[Typed], names: str) -> Typed:
    columns = T.StructType([T.StructField(names.format(at), it[0]) for at, it in enumerate(fields)])
    return columns, st.tuples(*(st.none() | it for _, it in fields))


def _map(values: Typed) -> Typed:
    entries = st.dictionaries(TEXT, st.none() | values[1], max_size=3)
    return T.MapType(T.StringType(), values[0]), entries
