"""Keys and values decoded by schemas of the registry."""

import io
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.record_scanner import Scanner
from ottla_broker.console.schema_decoding import SchemaDecoder, make_decoder, read_message_indexes
from ottla_broker.console.schema_framing import DecodedBytes, schema_id_of
from ottla_broker.console.search_messages import AddSchemas, ScanRecords, StartSearch
from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from ottla_broker.registry.schema import NamedSchema, SchemaSource
from ottla_broker.wire.records import Record, encode_batch

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
    ],
}
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
VALUE = {"id": 7, "price": Decimal("1.50"), "at": AT, "day": date(2026, 1, 31), "note": "x", "raw": b"\xff"}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message First { string a = 1; }
message Order {
  message Line { string sku = 1; int64 count = 2; }
  enum State { OPEN = 0; PAID = 1; }
  int64 id = 1;
  repeated Line lines = 2;
  map<int32, string> names = 3;
  State state = 4;
  optional string note = 5;
  google.protobuf.Timestamp at = 6;
}
"""


def frame(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + data


def avro(value: Any, schema: Any = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decode(source: SchemaSource, data: bytes) -> DecodedBytes | None:
    decoder = SchemaDecoder()
    record = Record(0, None, frame(3, data))
    assert decoder.unknown_ids(record) == [3]
    decoder.add_schemas({3: source})
    assert decoder.unknown_ids(record) == []
    return decoder.decode(record).value


def test_avro_value_has_its_fields_with_every_digit() -> None:
    decoded = decode(SchemaSource("AVRO", json.dumps(ORDER)), avro(VALUE))
    assert decoded == DecodedBytes(
        "AVRO", 3, {"id": 7, "price": "1.50", "at": AT, "day": "2026-01-31", "note": "x", "raw": b"\xff"}
    )


def test_avro_types_of_references_are_known() -> None:
    line = NamedSchema("shop.Line", "AVRO", '{"type":"record","name":"shop.Line","fields":[{"name":"n","type":"int"}]}')
    source = SchemaSource("AVRO", '{"type":"array","items":"shop.Line"}', (line,))
    data = avro([{"n": 4}], {"type": "array", "items": json.loads(line.text)})
    decoded = decode(source, data)
    assert decoded is not None and decoded.value == [{"n": 4}]


def test_protobuf_message_is_found_by_its_path() -> None:
    order = load_descriptor(PROTO).message_types_by_name["Order"]
    message = message_factory.GetMessageClass(order)(id=2**60, state=1, names={5: "five"})
    message.lines.add(sku="a-1", count=2)
    message.at.FromDatetime(AT)
    decoded = decode(SchemaSource("PROTOBUF", PROTO), b"\x02\x02" + message.SerializeToString())
    assert decoded is not None
    assert decoded.value == {
        "id": 2**60,
        "lines": [{"sku": "a-1", "count": 2}],
        "names": {"5": "five"},
        "state": "PAID",
        "at": AT,
    }
    line = message_factory.GetMessageClass(order.nested_types_by_name["Line"])(sku="b")
    nested = decode(SchemaSource("PROTOBUF", PROTO), b"\x04\x02\x00" + line.SerializeToString())
    assert nested is not None and nested.value["sku"] == "b"
    first = decode(SchemaSource("PROTOBUF", PROTO), b"\x00\x0a\x01x")
    assert first is not None and first.value == {"a": "x"}


def test_json_value_is_its_object() -> None:
    decoded = decode(SchemaSource("JSON", '{"type":"object"}'), b'{"a": [1]}')
    assert decoded is not None and decoded.value == {"a": [1]}


@pytest.mark.parametrize(
    ("kind", "text", "data"),
    [
        ("AVRO", json.dumps(ORDER), avro(VALUE)[:-1]),
        ("AVRO", json.dumps(ORDER), avro(VALUE) + b"x"),
        ("AVRO", '"string"', b"\x02\xff"),
        ("AVRO", "{", b""),
        ("PROTOBUF", PROTO, b"\x00\x0a\x05x"),
        ("PROTOBUF", PROTO, b"\x02\x08"),
        ("PROTOBUF", "message {", b"\x00"),
        ("JSON", "{}", b"{"),
        ("XML", "<a/>", b""),
    ],
)
def test_values_that_a_schema_cannot_read_are_left_as_they_are(kind: str, text: str, data: bytes) -> None:
    assert decode(SchemaSource(kind, text), data) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_left(data: bytes) -> None:
    for source in (SchemaSource("AVRO", json.dumps(ORDER)), SchemaSource("PROTOBUF", PROTO)):
        decoder = SchemaDecoder()
        decoder.add_schemas({1: source})
        decoder.decode(Record(0, data, frame(1, data)))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_message_paths_are_read_as_they_are_written(path: list[int]) -> None:
    def zigzag(number: int) -> bytes:
        number, out = number << 1, b""
        while number > 0x7F:
            out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
        return out + bytes([number])

    data = zigzag(len(path)) + b"".join(map(zigzag, path))
    assert read_message_indexes(data + b"rest") == (path, len(data))


def test_frames_have_a_zero_byte_and_an_id() -> None:
    assert schema_id_of(frame(258, b"")) == 258
    assert [schema_id_of(one) for one in (None, b"", b"\0\0\0\0", b"\1\0\0\0\1")] == [None] * 4
    assert make_decoder(SchemaSource("AVRO", '"no type"')) is None


def test_scan_asks_for_schemas_once_and_then_finds_by_fields() -> None:
    records = [Record(0, frame(9, avro(f"k{n}", "string")), frame(3, avro({**VALUE, "id": n}))) for n in range(20)]
    records.append(Record(0, None, b"\0\0\0\0\7not framed"))
    batch = encode_batch(records, base_offset=0)
    scanner = Scanner(StartSearch("value.id > 17 && value.at.getFullYear() == 2026", None, "auto", has_registry=True))
    request = ScanRecords(0, batch, 0, -1, 100)
    assert scanner.scan(request).unknown_ids == [3, 7, 9]
    sources = {3: SchemaSource("AVRO", json.dumps(ORDER)), 9: SchemaSource("AVRO", '"string"'), 7: None}
    scanner.add_schemas(AddSchemas(sources))
    response = scanner.scan(request)
    assert (response.scanned, response.failed, response.unknown_ids) == (21, 1, [])
    assert [one.offset for one in response.found] == [18, 19]
    shown = response.found[0]
    assert (shown.key.text, shown.key.schema) == ('"k18"', "AVRO, schema 9")
    assert json.loads(shown.value.text)["price"] == "1.50" and shown.value.schema == "AVRO, schema 3"
    by_key = Scanner(StartSearch("", b"k7", "auto", "jsonl", has_registry=True))
    by_key.add_schemas(AddSchemas(sources))
    (line,) = by_key.scan(request).exported.splitlines()
    assert json.loads(line)["value"]["id"] == 7 and json.loads(line)["valueSchemaId"] == 3


def test_records_before_an_unknown_schema_are_exported_once() -> None:
    records = [Record(0, None, b"plain"), Record(0, None, frame(9, avro("framed", "string")))]
    scanner = Scanner(StartSearch("", None, "auto", "jsonl", has_registry=True))
    request = ScanRecords(0, encode_batch(records, base_offset=0), 0, -1, 100)
    assert scanner.scan(request).unknown_ids == [9]
    scanner.add_schemas(AddSchemas({9: SchemaSource("AVRO", '"string"')}))
    exported = scanner.scan(request).exported + scanner.finish_export().exported
    assert [json.loads(line)["value"] for line in exported.splitlines()] == ["plain", "framed"]
