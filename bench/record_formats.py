"""Rows that a core decodes and encodes per second, by each format of the registry's framing.

    python -m bench.record_formats

Rows are flights with seven columns: four strings, two timestamps and an integer, by the schema that
a sink registers for them. What Spark needs to pass rows to Python and back is not included. Each
figure is the best of the rounds, in CPU time.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from pyspark.sql import types as T

from ottla_spark.record_schema import FORMS
from ottla_spark.schema_registry import NO_REGISTRY
from ottla_spark.streaming.encode import schema_of_columns
from ottla_spark.streaming.framed_records import decode_value, encode_row, value_columns

ROWS: Final = 20_000
ROUNDS: Final = 7
COLUMNS: Final = T.StructType(
    [
        *(T.StructField(it, T.StringType()) for it in ("event", "flight", "carrier", "origin")),
        *(T.StructField(it, T.TimestampType()) for it in ("scheduled", "actual")),
        T.StructField("delay", T.IntegerType()),
    ]
)


def main() -> None:
    row, at, columns = T.Row(*COLUMNS.names), datetime.datetime(2013, 7, 1, 9, 30), COLUMNS.json()
    rows = [row("departure", f"UA{number}", "UA", "EWR", at, at, number % 90) for number in range(ROWS)]
    for format_ in FORMS:
        schema, _ = schema_of_columns(format_, COLUMNS, "flight")
        names = value_columns(schema).names
        encode, decode = partial(encode_row, schema, 1, columns), partial(decode_value, NO_REGISTRY, schema, names)
        values = [encode(it) for it in rows]
        encoded, decoded = rate(encode, rows), rate(decode, values)
        size = sum(map(len, values)) / ROWS
        print(f"{format_}: decodes {decoded:,.0f} and encodes {encoded:,.0f} rows/s; {size:.0f} bytes a record")


def rate(call: Callable[[Any], object], values: Iterable[Any]) -> float:
    """Calls per second of CPU time, in the fastest of ROUNDS rounds. `values`: ROWS values."""

    def one_round() -> float:
        start = time.process_time()
        for value in values:
            call(value)
        return time.process_time() - start

    return ROWS / min(one_round() for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
