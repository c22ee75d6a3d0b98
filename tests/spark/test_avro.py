"""Avro records in the schema registry's framing: read, rejected and written."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from examples.flights import load
from ottla_spark.errors import PipelineError
from ottla_spark.schema_registry import frame_header
from tests.spark.conftest import Runner, Topics, events
from tests.spark.test_iceberg import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights"

AT = datetime.datetime(2013, 7, 1, 9, 30, 0, 250_000, datetime.UTC)


def order(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, *fields]})


OLD = order({"name": "city", "type": "string"}, {"name": "note", "type": "string"})
NEW = order(
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
    {"name": "city", "type": "string"},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "n", "type": "long"}]}}, "default": []},
)  # fmt: skip


@pytest.fixture
def client(registry: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry})


def write(topics: Topics, client: SchemaRegistryClient, topic: str, schema: str, *values: dict[str, Any]) -> None:
    serialize = AvroSerializer(client, schema)
    context = SerializationContext(topic, MessageField.VALUE)
    topics.write(topic, *(serialize(value, context) for value in values))


def test_records_of_mixed_schemas_are_read_by_their_own_and_written_for_other_clients(
    pipeline: Runner, topics: Topics, registry: str, client: SchemaRegistryClient
) -> None:
    pipeline.registry = registry
    topics.create("avro-in", "avro-out", "avro-same", "avro-dead", partitions=2)
    write(topics, client, "avro-in", OLD, {"id": 1, "city": "A", "note": "x"})
    write(topics, client, "avro-in", NEW, {"id": 2, "city": "B", "at": AT, "lines": [{"n": 7}]})
    old_id = client.lookup_schema("avro-in-value", Schema(OLD, "AVRO")).schema_id
    broken = (
        b"{}",
        b"\x00\x00\x00\xff\xff\x02",
        frame_header(old_id) + b"\x02",
        frame_header(old_id) + b"\x02\x02A\x02x!",
    )
    topics.write("avro-in", *broken)
    topics.write("avro-in", None)
    client.register_schema("avro-same-value", Schema(NEW, "AVRO"))
    spec = {
        "sources": {"orders": {"topic": "avro-in", "format": {"type": "avro", "schemaRef": {}}}},
        "transforms": [
            {
                "name": "rows",
                "sql": "SELECT id, city, at, get(lines, 0).n AS first, size(lines) AS lines, "
                "CAST(1.5 AS DECIMAL(4,2)) AS price, CAST(at AS DATE) AS day FROM orders",
            }
        ],
        "sinks": [
            {"from": "rows", "topic": "avro-out", "format": {"type": "avro"}},
            {"from": "orders", "topic": "avro-same", "format": {"type": "avro", "register": False}},
        ],
        "deadLetter": {"topic": "avro-dead"},
    }
    pipeline(spec)

    deserialize = AvroDeserializer(client)
    context = SerializationContext("avro-out", MessageField.VALUE)
    rows = {it["id"]: it for it in (deserialize(message.value, context) for message in topics.read("avro-out"))}
    common = {"price": Decimal("1.50")}
    assert rows == {
        1: {"id": 1, "city": "A", "at": None, "first": None, "lines": 0, "day": None, **common},
        2: {"id": 2, "city": "B", "at": AT, "first": 7, "lines": 1, "day": AT.date(), **common},
    }
    same = [deserialize(message.value, context) for message in topics.read("avro-same")]
    assert sorted(same, key=lambda it: it["id"]) == [
        {"id": 1, "at": None, "city": "A", "lines": []},
        {"id": 2, "at": AT, "city": "B", "lines": [{"n": 7}]},
    ]

    letters = [(message.value, message.headers["ottla.reason"]) for message in topics.read("avro-dead")]
    assert {value for value, _ in letters} == {*broken, b""}
    reasons = " ".join(sorted({str(reason) for _, reason in letters}))
    for sentence in (
        "the record has no value",
        "the value does not begin with the id of a schema",
        "the schema registry has no schema 65535",
        f"the value is not a record of schema {old_id} that the reader's schema can read",
        f"the value has 1 bytes after the record of schema {old_id}",
    ):
        assert sentence in reasons

    for change, sentence in (
        ({"sources": {"orders": {"topic": "avro-in", "format": {"type": "avro", "schemaRef": {"version": 9}}}}},
         r"^spec\.sources\.orders\.format\.schemaRef: no version 9 of avro-in-value: "),
        ({"sinks": [{"from": "rows", "topic": "avro-same", "format": {"type": "avro", "register": False}}]},
         "^sink rows: the subject avro-same-value: the schema has no field first, price, day; it has id, at, city"),
        ({"sinks": [{"from": "rows", "topic": "avro-in", "format": {"type": "avro"}}]},
         "^sink rows: the schema registry at .* refuses: .*incompatible"),
    ):  # fmt: skip
        with pytest.raises(PipelineError, match=sentence):
            pipeline({**spec, **change})
    pipeline.registry = ""
    with pytest.raises(PipelineError, match=r"^spec\.sources\.orders\.format needs a schema registry"):
        pipeline(spec)


@pytest.mark.slow
def test_spark_s_own_from_avro_reads_the_records_of_a_sink(
    pipeline: Runner, topics: Topics, registry: str, client: SchemaRegistryClient
) -> None:
    pipeline.registry = registry
    topics.create("from-avro-in", "from-avro-out")
    topics.write("from-avro-in", {"id": 1, "city": "A", "at": "2013-07-01T09:30:00.25Z"}, {"id": 2})
    sql = "SELECT id, city, at, array(named_struct('n', id)) AS lines, CAST(1.5 AS DECIMAL(4,2)) AS price FROM events"
    pipeline(
        {
            "sources": {"events": events("from-avro-in")},
            "transforms": [{"name": "rows", "sql": sql}],
            "sinks": [{"from": "rows", "topic": "from-avro-out", "format": {"type": "avro"}}],
        }
    )
    schema = client.get_latest_version("from-avro-out-value").schema.schema_str
    assert schema is not None
    spark = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        values = spark.createDataFrame([(message.value,) for message in topics.read("from-avro-out")], "value BINARY")
        # The schema's id is before the record: a zero and four bytes.
        record = from_avro(F.expr("substring(value, 6)"), schema, {"mode": "FAILFAST"})
        rows = values.select(record.alias("r")).select("r.*").select("*", F.unix_millis("at").alias("ms")).drop("at")
        first, second = sorted((row.asDict(recursive=True) for row in rows.collect()), key=lambda it: it["id"])
    finally:
        spark.stop()
    common = {"price": Decimal("1.50")}
    assert first == {"id": 1, "city": "A", "lines": [{"n": 1}], "ms": int(AT.timestamp() * 1000), **common}
    assert second == {"id": 2, "city": None, "lines": [{"n": 2}], "ms": None, **common}


def test_columns_of_a_new_version_in_the_registry_are_added_to_an_iceberg_table(
    pipeline: Runner, topics: Topics, registry: str, client: SchemaRegistryClient
) -> None:
    pipeline.registry = registry
    topics.create("evolved-in")
    table = {"table": "lake.db.evolved", "catalog": {"type": "hadoop", "warehouse": "lake"}}
    spec = {
        "sources": {"orders": {"topic": "evolved-in", "format": {"type": "avro", "schemaRef": {}}}},
        "sinks": [{"from": "orders", "iceberg": table}],
    }
    city, at = json.loads(OLD)["fields"][1], json.loads(NEW)["fields"][1]
    write(topics, client, "evolved-in", order(city), {"id": 1, "city": "A"})
    pipeline(spec)
    write(topics, client, "evolved-in", order(city, at), {"id": 2, "city": "B", "at": AT})
    pipeline(spec)
    rows = read(pipeline.folder, "db", "evolved").scan().to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "city": "A", "at": None},
        {"id": 2, "city": "B", "at": AT},
    ]


FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        *({"name": it, "type": "string"} for it in ("event", "flight", "carrier", "origin")),
        *({"name": it, "type": {"type": "long", "logicalType": "timestamp-millis"}} for it in ("scheduled", "actual")),
        {"name": "delay", "type": ["null", "int"], "default": None},
    ],
}
FLIGHTS = 3_000


@pytest.mark.slow
def test_flights_in_avro_have_the_results_of_flights_in_json(
    topics: Topics, registry: str, client: SchemaRegistryClient, tmp_path: Path, jvm_conf: dict[str, str]
) -> None:
    topics.create("json-flights", "avro-flights", "both-airlines", "both-airports")
    serialize = AvroSerializer(client, json.dumps(FLIGHT))
    context = SerializationContext("avro-flights", MessageField.VALUE)
    flight_count = 0
    for record in load.records():
        if record.topic in ("airlines", "airports"):
            topics.producer.produce(f"both-{record.topic}", record.value, record.key)
        elif record.topic == "flights" and (flight_count := flight_count + 1) <= FLIGHTS:
            event = json.loads(record.value)
            times = {it: datetime.datetime.fromisoformat(event[it]) for it in ("scheduled", "actual")}
            topics.producer.produce("json-flights", record.value, record.key)
            topics.producer.produce("avro-flights", serialize({**event, **times}, context), record.key)
        elif flight_count > FLIGHTS:
            break
    assert topics.producer.flush(30) == 0

    spec = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())["spec"]
    results = []
    for variant, change in (("json", {}), ("avro", {"format": {"type": "avro", "schemaRef": {}}})):
        topics.create(f"{variant}-delays", f"{variant}-flights-dead")
        sources = {name: {**it, "topic": f"both-{name}"} for name, it in spec["sources"].items()}
        sources["flights"] = {**spec["sources"]["flights"], "topic": f"{variant}-flights", **change}
        sinks = [{**spec["sinks"][0], "topic": f"{variant}-delays"}]
        letters = {"topic": f"{variant}-flights-dead"}
        runner = Runner(topics, tmp_path / variant, jvm_conf, registry)
        runner.folder.mkdir()
        runner({"sources": sources, "transforms": spec["transforms"], "sinks": sinks, "deadLetter": letters})
        results.append({message.key: message.json for message in topics.read(f"{variant}-delays")})
    assert results[0] == results[1]
    assert sum(row["departures"] for row in results[0].values()) > FLIGHTS / 3
