"""Values given as JSON, encoded by schemas and read by the languages' own libraries."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import message_factory

from ottla_broker.console.schema_decoding import read_message_indexes
from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from ottla_broker.registry.languages.value_encoding import encode_value, write_message_indexes
from ottla_broker.registry.languages.value_mismatch import ValueMismatch
from ottla_broker.registry.schema import NamedSchema, SchemaSource

LINE = {"type": "record", "name": "shop.Line", "fields": [{"name": "count", "type": "int"}]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "lines", "type": {"type": "array", "items": "shop.Line"}, "default": []},
        {"name": "note", "type": ["null", "string", "shop.Line"], "default": None},
        {"name": "price", "type": MONEY, "default": ""},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}, "default": "OPEN"},
        {"name": "by", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}, "default": "ab"},
    ],
}  # fmt: skip
AVRO = SchemaSource("AVRO", json.dumps(ORDER), (NamedSchema("shop.Line", "AVRO", json.dumps(LINE)),))
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message First { string a = 1; }
message Order {
  message Line { string sku = 1; int64 count = 2; }
  int64 id = 1;
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
}
"""


def read_avro(data: bytes) -> Any:
    named: dict[str, Any] = {}
    fastavro.parse_schema(LINE, named)
    stream = io.BytesIO(data)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(ORDER, named), None)
    assert stream.tell() == len(data)
    return value


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({}, {"note": None, "raw": b"\xff", "state": "OPEN", "mark": b"ab", "day": date(1970, 1, 1), "by": {}}),
        ({"lines": [{"count": 1}, {"count": -2}]}, {"lines": [{"count": 1}, {"count": -2}]}),
        ({"note": "x"}, {"note": "x"}),
        ({"note": {"count": 7}}, {"note": {"count": 7}}),
        ({"note": {"string": "x"}}, {"note": "x"}),
        ({"note": {"shop.Line": {"count": 7}}}, {"note": {"count": 7}}),
        ({"price": "-1.50"}, {"price": Decimal("-1.50")}),
        ({"price": 99.99}, {"price": Decimal("99.99")}),
        ({"at": "2026-01-31T12:00:00Z", "day": "2026-01-31"}, {"at": AT, "day": date(2026, 1, 31)}),
        ({"at": 5}, {"at": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)}),
        ({"raw": "AP8=", "mark": "AP8="}, {"raw": b"\0\xff", "mark": b"\0\xff"}),
        ({"state": "PAID", "by": {"a": 1, "b": 0.5}}, {"state": "PAID", "by": {"a": 1.0, "b": 0.5}}),
    ],
)
def test_avro_value_is_read_back(given: dict[str, Any], written: dict[str, Any]) -> None:
    found = read_avro(encode_value(AVRO, json.dumps({"id": 2**62, **given})))
    assert found["id"] == 2**62
    assert {name: found[name] for name in written} == written


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "expected JSON (Expecting value: line 1 column 1 (char 0))"),
        ('{"id": NaN}', "expected JSON (NaN is not a number)"),
        ("[]", "expected an object, not []"),
        ("{}", "field id: expected a value, because the field has no default"),
        ('{"id": 1, "other": 2}', "field other: expected one of the fields at, by, day, id, "),
        ('{"id": true}', "field id: expected an integer of 64 bits, not true"),
        ('{"id": 1.5}', 'field id: expected an integer of 64 bits, not "1.5"'),
        ('{"id": 9223372036854775808}', "field id: expected an integer of 64 bits, not 9223372036854775808"),
        (
            '{"id": 1, "lines": [{"count": 1}, {"count": "x"}]}',
            'field lines[1].count: expected an integer of 32 bits, not "x"',
        ),
        ('{"id": 1, "note": 3}', "field note: expected one of null, string, shop.Line, not 3"),
        ('{"id": 1, "price": "1.555"}', 'field price: expected at most 4 digits, 2 of them after the point, not "1'),
        ('{"id": 1, "price": 100}', "field price: expected at most 4 digits, 2 of them after the point, not 100"),
        ('{"id": 1, "price": "1e99999999"}', "field price: expected at most 4 digits"),
        ('{"id": 1, "price": "NaN"}', "field price: expected at most 4 digits"),
        ('{"id": 1, "at": "2026-01-31T12:00:00"}', "field at: expected a timestamp such as 2026-01-31T12:00:00Z"),
        ('{"id": 1, "state": "GONE"}', 'field state: expected one of OPEN, PAID, not "GONE"'),
        ('{"id": 1, "raw": "%"}', 'field raw: expected bytes in base64, not "%"'),
        ('{"id": 1, "mark": "AA=="}', "field mark: expected 2 bytes in base64"),
        ('{"id": 1, "by": {"a": "1"}}', 'field by.a: expected a number, not "1"'),
        ('{"id": 1, "note": "\\ud800"}', "expected a value that Avro can write"),
        ('{"id": 1, "by": {"\\ud800": "x"}}', "field by.?: expected a number"),
    ],
)  # fmt: skip
def test_value_that_avro_cannot_write_names_field_and_reason(given: str, reason: str) -> None:
    with pytest.raises(ValueMismatch) as refused:
        encode_value(AVRO, given)
    assert reason in str(refused.value)


def test_protobuf_message_is_read_back() -> None:
    file = load_descriptor(PROTO)
    text = '{"id": "9223372036854775807", "lines": [{"sku": "a", "count": 2}], "at": "2026-01-31T12:00:00Z"}'
    data = encode_value(SchemaSource("PROTOBUF", PROTO), text, "Order")
    path, start = read_message_indexes(data)
    message = message_factory.GetMessageClass(file.message_types_by_name["Order"]).FromString(data[start:])
    assert (path, message.id, message.lines[0].count) == ([1], 2**63 - 1, 2)
    assert message.at.ToDatetime(tzinfo=UTC) == AT
    assert encode_value(SchemaSource("PROTOBUF", PROTO), '{"a": "x"}') == b"\0\x0a\x01x"
    for name in ("Order.Line", "shop.Order.Line"):
        nested = encode_value(SchemaSource("PROTOBUF", PROTO), "{}", name)
        assert nested == write_message_indexes([1, 0]) == b"\x04\x02\x00"


@pytest.mark.parametrize("path", [[0], [1], [0, 0], [63], [64, 3], [100_000]])
def test_indexes_of_a_message_are_read_back(path: list[int]) -> None:
    data = write_message_indexes(path)
    assert read_message_indexes(data + b"x") == (path, len(data))


@pytest.mark.parametrize(
    ("given", "message", "reason"),
    [
        ("x", "", "expected what a message shop.First can hold (Failed to load JSON"),
        ('{"b": 1}', "", 'no field named "b"'),
        ('{"lines": [{"count": "x"}]}', "Order", "field lines.count: expected what a message shop.Order can"),
        ("{}", "Other", 'expected the name of a message, one of First, Order, not "Other"'),
    ],
)
def test_value_that_protobuf_cannot_write_is_refused(given: str, message: str, reason: str) -> None:
    with pytest.raises(ValueMismatch) as refused:
        encode_value(SchemaSource("PROTOBUF", PROTO), given, message)
    assert reason in str(refused.value)


ITEM = '{"$id": "item.json", "type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}}'
JSON = SchemaSource(
    "JSON", '{"type": "object", "properties": {"items": {"type": "array", "items": {"$ref": "item.json"}}}}',
    (NamedSchema("item.json", "JSON", ITEM),),
)  # fmt: skip


def test_json_value_stays_the_text_that_was_given() -> None:
    text = '{"items": [{"count": 1}], "precise": 0.10000000000000000001}'
    assert encode_value(JSON, f"{text}\n") == text.encode()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ('{"items": [{"count": 1}, {"count": 0}]}', "field items[1].count: expected what the schema allows: 0 is less"),
        ("[]", 'expected what the schema allows: [] is not of type "object"'),
        ("{", "expected JSON ("),
    ],
)
def test_value_that_a_json_schema_does_not_allow_names_field_and_reason(given: str, reason: str) -> None:
    with pytest.raises(ValueMismatch) as refused:
        encode_value(JSON, given)
    assert reason in str(refused.value)
