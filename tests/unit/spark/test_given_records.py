"""Records of test cases, encoded by the schemas of their sources."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

from ottla_spark.record_schema import RecordSchema
from ottla_spark.streaming import avro_records, json_schema_records, protobuf_records
from ottla_spark.streaming.cases import parse_given
from ottla_spark.streaming.given_records import encode_text, given_encoder
from tests.unit.spark.proto_files import schema_of

AT = datetime.datetime(2013, 7, 1, 9, 30, tzinfo=datetime.UTC)
AVRO = RecordSchema(
    "avro",
    json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
                {"name": "raw", "type": ["null", "bytes"], "default": None},
                {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
            ],
        }
    ),
)
PROTO = schema_of('syntax = "proto3"; message A { int32 id = 1; optional string city = 2; }')
JSON = RecordSchema("json", json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))


def test_json_is_encoded_by_the_schema_of_the_source() -> None:
    value = {"at": "2013-07-01T09:30:00Z", "day": "2013-07-01", "price": 1.5, "raw": "eA==", "tags": {"a": ["b"]}}
    assert avro_records.open_decoder(AVRO, AVRO, 0)(given_encoder(AVRO)(value)) == {
        "at": AT, "day": AT.date(), "price": Decimal("1.50"), "raw": base64.b64decode("eA=="), "tags": {"a": ["b"]},
    }  # fmt: skip
    assert protobuf_records.open_decoder(PROTO, PROTO, 0)(given_encoder(PROTO)({"id": 5})) == (5, None)
    assert json_schema_records.open_decoder(JSON, JSON, 0)(given_encoder(JSON)({"id": 5})) == (5,)
    assert given_encoder(None) is encode_text


def test_value_that_its_schema_cannot_have_is_an_error_with_the_line() -> None:
    for schema, value, sentence in (
        (AVRO, {"at": "soon"}, "2: not a value of the Avro schema: .*soon"),
        (AVRO, {"city": "A"}, "2: not a value of the Avro schema: there is no field city; there are at, day"),
        (PROTO, {"id": "x"}, "2: not a message A: "),
        (PROTO, {"town": "A"}, '2: not a message A: .*no field named "town"'),
        (PROTO, 5, "2: not a message A: "),
    ):
        with pytest.raises(ValueError, match=sentence):
            list(parse_given(["", json.dumps(value)], "t", encode_text, given_encoder(schema)))


def test_key_is_encoded_by_its_own_schema() -> None:
    lines = ['{"key": {"id": 1}, "value": {"a": 1}}', '{"value": {"a": 2}}', "no JSON"]
    found: list[Any] = [(key, value) for key, value, *_ in parse_given(lines, "t", given_encoder(PROTO))]
    assert found == [(given_encoder(PROTO)({"id": 1}), b'{"a": 1}'), (None, b'{"a": 2}'), (None, b"no JSON")]
