"""Avro records without Spark: decoding by the writer's schema, encoding, types."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError
from ottla_spark.record_schema import RecordSchema, UnusableSchema
from ottla_spark.schema_registry import SchemaRegistry, frame_header, framed_schema_id
from ottla_spark.streaming.avro_records import open_decoder, open_encoder
from ottla_spark.streaming.avro_types import to_avro_schema, to_spark_type
from ottla_spark.streaming.encode import schema_of_columns
from ottla_spark.streaming.framed_records import decode_value, encode_row, value_columns
from tests.unit.spark.row_strategies import row_types


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": it, "type": type_} for it, type_ in fields]}


def test_types_are_those_of_spark() -> None:
    schema = record(
        ("i", "int"),
        ("t", {"type": "long", "logicalType": "timestamp-micros"}),
        ("d", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]),
        ("e", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ("again", ["null", "E"]),
        ("m", {"type": "map", "values": ["null", "double"]}),
        ("r", record(("x", {"type": "array", "items": "string"}), name="Inner")),
        ("z", {"type": "int", "logicalType": "time-millis"}),
    )
    assert to_spark_type(json.dumps(schema)).simpleString() == (
        "struct<i:int,t:timestamp,d:decimal(9,2),e:string,again:string,m:map<string,double>,r:struct<x:array<string>>,z:int>"
    )


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "not an Avro schema"),
        (json.dumps(record(("u", ["int", "string"]))), "u: the union of int, string has no type in Spark"),
        (json.dumps(record(("child", ["null", "R"]))), "child: the type R contains itself"),
    ],
)
def test_schema_that_cannot_become_columns_is_refused(schema: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        to_spark_type(schema)


@pytest.mark.parametrize(
    "children_type",
    [["null", "R"], {"type": "array", "items": "R"}, {"type": "map", "values": record(("r", "R"), name="Inner")}],
)
def test_writers_schema_that_contains_itself_is_refused(children_type: Any) -> None:
    writer = RecordSchema("avro", json.dumps(record(("id", "int"), ("children", children_type))))
    reader = RecordSchema("avro", json.dumps(record(("id", "int"))))
    with pytest.raises(UnusableSchema, match="the Avro schema 7 contains itself"):
        open_decoder(writer, reader, 7)
    twice = record(("a", record(("n", "int"), name="Inner")), ("b", "Inner"), ("id", "int"))
    open_decoder(RecordSchema("avro", json.dumps(twice)), reader, 7)


def test_value_without_columns_is_refused() -> None:
    with pytest.raises(PipelineError, match="the schema is int, not a record: it has no columns"):
        value_columns(RecordSchema("avro", '"int"'))


def test_columns_that_avro_does_not_have_are_refused() -> None:
    with pytest.raises(PipelineError, match="the column 'a b' is"):
        to_avro_schema(T.StructType([T.StructField("a b", T.LongType())]), "r")
    with pytest.raises(PipelineError, match="the column v is void"):
        to_avro_schema(T.StructType([T.StructField("v", T.NullType())]), "r")


def test_registry_that_does_not_respond_fails_the_batch_and_makes_no_dead_letter() -> None:
    with pytest.raises(PipelineError, match="no schema registry responds at http://127"):
        decode_value(SchemaRegistry("http://127.0.0.1:1"), RecordSchema("avro", "{}"), ["a"], frame_header(1) + b"x")


def test_row_is_encoded_with_all_its_types() -> None:
    at = datetime.datetime(2013, 7, 1, 9, 30, 0, 1)  # in this machine's time zone, as Spark passes it
    columns = T.StructType(
        [
            T.StructField("at", T.TimestampType()),
            T.StructField("price", T.DecimalType(4, 2)),
            T.StructField("raw", T.BinaryType()),
            T.StructField("inner", T.StructType([T.StructField("n", T.ShortType())])),
            T.StructField("tags", T.MapType(T.StringType(), T.DateType())),
        ]
    )
    schema = json.dumps(to_avro_schema(columns, "r"))
    row = Row(at=at, price=Decimal("1.5"), raw=bytearray(b"x"), inner=Row(n=3), tags={"a": at.date()})
    value = encode_row(RecordSchema("avro", schema), 7, columns.json(), row)
    assert framed_schema_id(value) == 7
    found: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(json.loads(schema)), None)
    assert found == {
        "at": at.astimezone(datetime.UTC), "price": Decimal("1.50"), "raw": b"x", "inner": {"n": 3},
        "tags": {"a": at.date()},
    }  # fmt: skip
    with pytest.raises(PipelineError, match="a row does not fit the schema 7"):
        encode_row(
            RecordSchema("avro", json.dumps(record(*((it, "string") for it in columns.names)))), 7, columns.json(), row
        )


def with_names(value: Any, type_: T.DataType, build: Callable[[dict[str, Any]], Any]) -> Any:
    """Replaces the tuple of each struct by `build` of its fields by name."""
    match type_:
        case T.StructType() if value is not None:
            parts = zip(type_, value, strict=True)
            return build({it.name: with_names(part, it.dataType, build) for it, part in parts})
        case T.ArrayType() if value is not None:
            return [with_names(it, type_.elementType, build) for it in value]
        case T.MapType() if value is not None:
            return {name: with_names(it, type_.valueType, build) for name, it in value.items()}
    return value


@given(st.data())
def test_rows_are_read_as_they_were_written(data: st.DataObject) -> None:
    columns, rows = data.draw(row_types())
    row = data.draw(rows)
    schema, _ = schema_of_columns("avro", columns, "row")
    value = open_encoder(schema, 7, columns)(with_names(row, columns, lambda it: Row(**it)))
    assert open_decoder(schema, schema, 7)(value) == with_names(row, columns, dict)
