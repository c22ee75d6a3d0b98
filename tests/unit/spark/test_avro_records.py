"""Avro records without Spark: decoding by the writer's schema, encoding, types."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import Row
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError
from ottla_spark.schema_registry import SchemaRegistry, frame, framed_schema_id
from ottla_spark.streaming.avro_records import decode_value, encode_row
from ottla_spark.streaming.avro_types import to_avro_schema, to_struct_type


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
    assert to_struct_type(json.dumps(schema)).simpleString() == (
        "struct<i:int,t:timestamp,d:decimal(9,2),e:string,again:string,m:map<string,double>,r:struct<x:array<string>>,z:int>"
    )


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "not an Avro schema"),
        ('"int"', "not a record"),
        (json.dumps(record(("u", ["int", "string"]))), "u: the union of int, string has no type in Spark"),
        (json.dumps(record(("child", ["null", "R"]))), "child: the type R contains itself"),
    ],
)
def test_schema_without_columns_is_refused(schema: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        to_struct_type(schema)


def test_columns_that_avro_does_not_have_are_refused() -> None:
    with pytest.raises(PipelineError, match="the column 'a b' is"):
        to_avro_schema(T.StructType([T.StructField("a b", T.LongType())]), "r")
    with pytest.raises(PipelineError, match="the column v is void"):
        to_avro_schema(T.StructType([T.StructField("v", T.NullType())]), "r")


def test_registry_that_does_not_respond_fails_the_batch_and_makes_no_dead_letter() -> None:
    with pytest.raises(PipelineError, match="no schema registry responds at http://127"):
        decode_value(SchemaRegistry("http://127.0.0.1:1"), "{}", ["a"], {}, frame(1) + b"x")


def test_row_is_encoded_with_all_its_types() -> None:
    at = datetime.datetime(2013, 7, 1, 9, 30, 0, 1)  # of this machine's time zone, as Spark hands it over
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
    value = encode_row(schema, 7, {}, row)
    assert framed_schema_id(value) == 7
    found: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(json.loads(schema)), None)
    assert found == {
        "at": at.astimezone(datetime.UTC), "price": Decimal("1.50"), "raw": b"x", "inner": {"n": 3},
        "tags": {"a": at.date()},
    }  # fmt: skip
    with pytest.raises(PipelineError, match="a row does not fit the Avro schema 7"):
        encode_row(json.dumps(record(("at", "string"))), 7, {}, row)
