"""JSON records with a JSON Schema, and keys of every format: read, rejected and written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla_spark.errors import PipelineError
from ottla_spark.schema_registry import frame_header
from tests.spark.conftest import Runner, Topics
from tests.unit.spark.proto_files import class_of, schema_of

LINE: dict[str, Any] = {"title": "Line", "type": "object", "properties": {"n": {"type": "integer"}}}
OLD: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "city": {"type": "string"}, "note": {"type": "string"}},
    "required": ["id"],
}
NEW: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "city": {"type": "string"},
        "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        "lines": {"type": "array", "items": {"$ref": "line.json"}},
        "state": {"enum": ["OPEN", "PAID"], "default": "OPEN"},
    },
    "required": ["id"],
}


@pytest.fixture
def client(registry: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry})


def of_value(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def of_key(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY)


def test_records_of_mixed_schemas_are_validated_and_written_for_other_clients(
    pipeline: Runner, topics: Topics, registry: str, client: SchemaRegistryClient
) -> None:
    pipeline.registry = registry
    topics.make("js-in", "js-out", "js-same", "js-dead", partitions=2)
    client.set_compatibility("js-in-value", "NONE")
    client.register_schema("line", Schema(json.dumps(LINE), "JSON"))
    new = Schema(json.dumps(NEW), "JSON", [SchemaReference("line.json", "line", 1)])
    write_old = JSONSerializer(json.dumps(OLD), client, conf={"validate": False})
    write_new = JSONSerializer(new, client, conf={"validate": False})
    full = {"id": 2, "city": "B", "at": "2013-07-01T09:30:00.25Z", "lines": [{"n": 7}], "state": "PAID"}
    values = [(write_old, {"id": 1, "city": "A", "note": "x"}), (write_new, full), (write_new, {"id": 3, "at": None})]
    invalid = [(write_old, {"id": 4, "note": 5}), (write_new, {"city": "C"}), (write_new, {"id": 5, "state": "GONE"})]
    topics.write("js-in", *(write(value, of_value("js-in")) for write, value in (*values, *invalid)))
    old_id, new_id = (client.get_version("js-in-value", it).schema_id for it in (1, 2))
    broken = (b"{}", b"\0\0\0\xff\xff{}", frame_header(old_id) + b"{")
    topics.write("js-in", *broken, None)
    client.register_schema("js-same-value", new)
    spec = {
        "sources": {"orders": {"topic": "js-in", "format": {"type": "json", "schemaRef": {}}}},
        "transforms": [
            {"name": "rows", "sql": "SELECT id, city, at, CAST(at AS DATE) AS day, lines, 0.5D AS half FROM orders"}
        ],
        "sinks": [
            {"from": "rows", "topic": "js-out", "format": {"type": "json", "register": True}},
            {"from": "orders", "topic": "js-same", "format": {"type": "json", "register": False}},
        ],
        "deadLetter": {"topic": "js-dead"},
    }
    pipeline(spec)

    written = client.get_latest_version("js-out-value").schema
    read = JSONDeserializer(written, schema_registry_client=client)
    rows = {it["id"]: it for it in (read(message.value, of_value("js-out")) for message in topics.read("js-out"))}
    empty = {"at": None, "day": None, "lines": None, "half": 0.5}
    at = "2013-07-01T09:30:00.250000Z"
    assert rows == {
        1: {"id": 1, "city": "A", **empty},
        2: {"id": 2, "city": "B", "at": at, "day": "2013-07-01", "lines": [{"n": 7}], "half": 0.5},
        3: {"id": 3, "city": None, **empty},
    }
    read = JSONDeserializer(new, schema_registry_client=client)
    same = [read(message.value, of_value("js-same")) for message in topics.read("js-same")]
    assert sorted(same, key=lambda it: it["id"]) == [
        {"id": 1, "city": "A", "at": None, "state": "OPEN"},
        {**full, "at": at},
        {"id": 3, "at": None, "state": "OPEN"},
    ]

    letters = [(message.value, message.headers["ottla.reason"]) for message in topics.read("js-dead")]
    assert len(letters) == len(invalid) + len(broken) + 1
    reasons = " ".join(sorted({str(reason) for _, reason in letters}))
    for sentence in (
        "the record has no value",
        "the value does not begin with the id of a schema",
        "the schema registry has no schema 65535",
        f'the value is not valid by schema {old_id}: 5 is not of type "string" at /note',
        'the value is not valid by the reader\'s schema: "id" is a required property',
        'the value is not valid by the reader\'s schema: "GONE" is not one of "OPEN" or "PAID" at /state',
        "the value is not JSON after the id of its schema",
    ):
        assert sentence in reasons, (sentence, new_id)

    with pytest.raises(
        PipelineError, match="the subject js-same-value: the schema has no property day, half; it has id"
    ):
        pipeline(
            {**spec, "sinks": [{"from": "rows", "topic": "js-same", "format": {"type": "json", "register": False}}]}
        )


CUSTOMER = json.dumps({"type": "record", "name": "K", "fields": [{"name": "customer", "type": "long"}]})
ORDER_KEY = 'syntax = "proto3"; message K { int32 customer = 1; }'
JSON_KEY = json.dumps({"title": "K", "type": "object", "properties": {"customer": {"type": "integer"}}})


def test_keys_are_decoded_and_encoded_by_their_schemas(
    pipeline: Runner, topics: Topics, registry: str, client: SchemaRegistryClient
) -> None:
    pipeline.registry = registry
    proto = class_of(schema_of(ORDER_KEY))
    serializers = {
        "avro": (AvroSerializer(client, CUSTOMER), {"customer": 1}),
        "long": (AvroSerializer(client, '"long"'), 2),
        "protobuf": (ProtobufSerializer(proto, client, {"use.deprecated.format": False}), proto(customer=3)),
        "json": (JSONSerializer(JSON_KEY, client), {"customer": 4}),
    }
    sources, transforms, sinks = {}, [], []
    for name, (serialize, key) in serializers.items():
        topics.make(f"key-{name}", f"key-{name}-out")
        topics.write(f"key-{name}", {"id": 1}, key=serialize(key, of_key(f"key-{name}")))
        topics.write(f"key-{name}", {"id": 2})
        topics.write(f"key-{name}", {"id": 3}, key="no schema")
        type_ = "avro" if name == "long" else name
        sources[f"of_{name}"] = {
            "topic": f"key-{name}",
            "format": {"type": "json", "schema": "id INT, k STRING"},
            "key": "k",
            "keyFormat": {"type": type_, "schemaRef": {}},
        }
        customer = "k" if name == "long" else "k.customer"
        transforms.append({"name": f"rows_{name}", "sql": f"SELECT id, {customer} AS customer FROM of_{name}"})
        key_format = {"type": type_, "register": name != "long"}
        sinks.append({"from": f"rows_{name}", "topic": f"key-{name}-out", "key": ["customer"], "keyFormat": key_format})
    client.register_schema("key-long-out-key", Schema('["null", "long"]', "AVRO"))
    topics.make("key-dead", "key-plain", "key-plain-out")
    topics.write("key-plain", {"id": 1}, key='{"customer": 5}')
    topics.write("key-plain", {"id": 2})
    topics.write("key-plain", {"id": 3}, key='{"customer": "x"}')
    sources["of_plain"] = {
        "topic": "key-plain",
        "format": {"type": "json", "schema": "id INT"},
        "key": "k",
        "keyFormat": {"type": "json", "schema": "customer INT NOT NULL"},
    }
    transforms.append({"name": "rows_plain", "sql": "SELECT id, k.customer AS customer FROM of_plain"})
    sinks.append({"from": "rows_plain", "topic": "key-plain-out", "key": ["customer"], "keyFormat": {"type": "json"}})
    pipeline({"sources": sources, "transforms": transforms, "sinks": sinks, "deadLetter": {"topic": "key-dead"}})

    proto_out = class_of(schema_of('syntax = "proto3"; message key_protobuf_out_key { optional int32 customer = 1; }'))
    deserializers: dict[str, tuple[Any, Callable[[Any], int | None], int]] = {
        "avro": (AvroDeserializer(client), lambda it: it["customer"], 1),
        "long": (AvroDeserializer(client), lambda it: it, 2),
        "protobuf": (
            ProtobufDeserializer(proto_out, {"use.deprecated.format": False}),
            lambda it: it.customer if it.HasField("customer") else None,
            3,
        ),
        "json": (
            JSONDeserializer(client.get_latest_version("key-json-out-key").schema, schema_registry_client=client),
            lambda it: it["customer"],
            4,
        ),
    }
    for name, (deserialize, customer_of, number) in deserializers.items():
        rows = topics.read(f"key-{name}-out")
        keys = {it.json["id"]: customer_of(deserialize(it.raw_key, of_key(f"key-{name}-out"))) for it in rows}
        assert keys == {1: number, 2: None}, name
    assert {it.json["id"]: it.key for it in topics.read("key-plain-out")} == {
        1: '{"customer":5}',
        2: '{"customer":null}',
    }
    letters = [(it.json, it.headers["ottla.reason"]) for it in topics.read("key-dead")]
    assert [value for value, _ in letters] == [{"id": 3}] * (len(serializers) + 1)
    assert {reason for _, reason in letters} == {
        "the key does not begin with the id of a schema",
        "the key is not JSON that matches the schema",
    }
