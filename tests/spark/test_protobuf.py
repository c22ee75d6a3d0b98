"""Protobuf records in the schema registry's framing: read, rejected and written."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from ottla_spark.errors import PipelineError
from ottla_spark.protobuf_schemas import find_message, parse_file_descriptor
from ottla_spark.record_schema import FORMS, gather_schema
from ottla_spark.schema_registry import SchemaRegistry, frame_header
from tests.spark.conftest import Runner, Topics
from tests.unit.spark.proto_files import class_of, schema_of

AT = datetime.datetime(2013, 7, 1, 9, 30, 0, 250_000, datetime.UTC)
COMMON = 'syntax = "proto3"; package common; message Address { string street = 1; }'
OLD = """
syntax = "proto2"; package shop;
message Other { optional int32 x = 1; }
message Order {
  required int32 id = 1; optional string city = 2; optional string note = 3; optional int32 urgency = 9 [default = 5];
}
"""
NEW = """
syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "common.proto";
message Other { int32 x = 1; }
message Order {
  int64 id = 1;
  string city = 2;
  google.protobuf.Timestamp at = 4;
  repeated Line lines = 5;
  map<string, int32> counts = 6;
  State state = 7;
  oneof payment { string card = 8; bool cash = 10; }
  google.protobuf.Int32Value weight = 11;
  common.Address address = 12;
  message Line { sint32 n = 1; }
  enum State { OPEN = 0; PAID = 1; }
}
"""


@pytest.fixture
def client(registry: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry})


def write(topics: Topics, client: SchemaRegistryClient, topic: str, *messages: Any, key: str | None = None) -> None:
    serialize = ProtobufSerializer(type(messages[0]), client, {"use.deprecated.format": False})
    context = SerializationContext(topic, MessageField.VALUE)
    topics.write(topic, *(serialize(message, context) for message in messages), key=key)


def read(topics: Topics, registry: str, topic: str) -> list[dict[str, Any]]:
    """Records by confluent-kafka's deserializer, with the class of the subject's latest schema."""
    client = SchemaRegistry(registry)
    latest = client.schema_of_version(f"{topic}-value", "latest", FORMS["protobuf"])
    schema = gather_schema(client, latest, "protobuf", "Order" if "Order" in latest.text else "")
    class_ = GetMessageClass(find_message(parse_file_descriptor(schema.text), schema.message))
    deserialize = ProtobufDeserializer(class_, {"use.deprecated.format": False})
    context = SerializationContext(topic, MessageField.VALUE)
    found = (deserialize(message.value, context) for message in topics.read(topic))
    return [MessageToDict(it, preserving_proto_field_name=True) for it in found]


def test_records_of_mixed_schemas_are_read_by_their_own_and_written_for_other_clients(
    pipeline: Runner, topics: Topics, registry: str, client: SchemaRegistryClient
) -> None:
    pipeline.registry = registry
    topics.create("proto-in", "proto-out", "proto-same", "proto-dead", partitions=2)
    old, new = class_of(schema_of(OLD, "Order")), class_of(schema_of(NEW, "Order", common=COMMON))
    other = class_of(schema_of(NEW, "Other", common=COMMON))
    client.set_compatibility("proto-in-value", "NONE")
    write(topics, client, "proto-in", old(id=1, city="A", note="x"))
    full = new(
        id=2, city="B", at=AT, lines=[{"n": -7}, {"n": 8}], counts={"a": 1}, state=1, cash=True, weight={"value": 0},
        address={"street": "S"},
    )  # fmt: skip
    write(topics, client, "proto-in", full, new(id=3))
    write(topics, client, "proto-in", other(x=1))
    old_id = client.get_version("proto-in-value", 1).schema_id
    broken = (b"{}", b"\0\0\0\xff\xff\0", frame_header(old_id) + b"\x02\x02\x08", frame_header(old_id) + b"\x02\x02")
    topics.write("proto-in", *broken, None)
    latest = client.get_latest_version("proto-in-value")
    client.register_schema("proto-same-value", latest.schema)
    spec = {
        "sources": {
            "orders": {"topic": "proto-in", "format": {"type": "protobuf", "schemaRef": {}, "message": "shop.Order"}}
        },
        "transforms": [
            {"name": "rows", "sql": "SELECT id, city, at, get(lines, 0).n AS first, lines, counts, weight FROM orders"}
        ],
        "sinks": [
            {"from": "rows", "topic": "proto-out", "format": {"type": "protobuf"}},
            {
                "from": "orders",
                "topic": "proto-same",
                "format": {"type": "protobuf", "register": False, "message": "Order"},
            },
        ],
        "deadLetter": {"topic": "proto-dead"},
    }
    pipeline(spec)

    rows = {it["id"]: it for it in read(topics, registry, "proto-out")}
    assert rows == {
        "1": {"id": "1", "city": "A"},
        "2": {
            "id": "2", "city": "B", "at": "2013-07-01T09:30:00.250Z", "first": -7, "lines": [{"n": -7}, {"n": 8}],
            "counts": {"a": 1}, "weight": 0,
        },
        "3": {"id": "3", "city": ""},
    }  # fmt: skip
    same = sorted(topics.read("proto-same"), key=lambda it: len(it.value))
    deserialize = ProtobufDeserializer(new, {"use.deprecated.format": False})
    context = SerializationContext("proto-same", MessageField.VALUE)
    assert [deserialize(it.value, context) for it in same] == [new(id=3), new(id=1, city="A"), full]

    letters = [(message.value, message.headers["ottla.reason"]) for message in topics.read("proto-dead")]
    assert {value for value, _ in letters} >= {*broken, b""}
    assert len(letters) == len(broken) + 2
    reasons = " ".join(sorted({str(reason) for _, reason in letters}))
    for sentence in (
        "the record has no value",
        "the value does not begin with the id of a schema",
        "the schema registry has no schema 65535",
        f"the value is not a message shop.Order of schema {old_id}: Error parsing message",
        f"the value is not a message shop.Order of schema {old_id}: it lacks the required id",
        "the value is a message shop.Other; the reader's schema is shop.Order",
    ):
        assert sentence in reasons

    for change, sentence in (
        ({"sources": {"orders": {"topic": "proto-in", "format": {"type": "avro", "schemaRef": {}}}}},
         r"^spec\.sources\.orders\.format\.schemaRef: the schema \d+ is of type PROTOBUF, not AVRO"),
        ({"sources": {"orders": {"topic": "proto-in", "format": {
            "type": "protobuf", "schemaRef": {}, "message": "Gone"}}}},
         r"^spec\.sources\.orders\.format: the schema has no message Gone; it has Other, Order"),
        ({"sinks": [{"from": "rows", "topic": "proto-same", "format": {
            "type": "protobuf", "register": False, "message": "Order"}}]},
         "^sink rows: the subject proto-same-value: the message shop.Order has no field first; it has id, city"),
        ({"sinks": [{"from": "rows", "topic": "proto-same", "format": {"type": "protobuf"}}]},
         "^sink rows: the schema registry at .* refuses: .*incompatible"),
    ):  # fmt: skip
        with pytest.raises(PipelineError, match=sentence):
            pipeline({**spec, **change})
