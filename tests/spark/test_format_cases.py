"""Test cases of pipelines with records of every format. Only a `schemaRef` needs a registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.spark.conftest import pipeline_document
from tests.unit.spark.proto_files import schema_of

PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order { int32 id = 1; google.protobuf.Timestamp at = 2; repeated Line lines = 3; State state = 4;
  message Line { string item = 1; } enum State { OPEN = 0; PAID = 1; } }
"""
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {
                "name": "state",
                "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]},
                "default": "OPEN",
            },
        ],
    }
)
JSON = json.dumps(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "day": {"type": "string", "format": "date"}},
        "required": ["id"],
    }
)
KEY = json.dumps({"type": "record", "name": "K", "fields": [{"name": "customer", "type": "long"}]})

SPEC: dict[str, Any] = {
    "sources": {
        "protos": {"topic": "p", "format": {"type": "protobuf", "schema": schema_of(PROTO).text}},
        "avros": {
            "topic": "a",
            "format": {"type": "avro", "schema": AVRO},
            "key": "k",
            "keyFormat": {"type": "avro", "schema": KEY},
        },
        "jsons": {"topic": "j", "format": {"type": "json", "schemaRef": {"subject": "cases-json"}}},
        "texts": {"topic": "t", "format": {"type": "json", "schema": "id INT NOT NULL, at TIMESTAMP"}, "key": "k"},
        "raws": {"topic": "r", "format": {"type": "raw"}},
    },
    "transforms": [
        {"name": "of_protos", "sql": "SELECT id, at, get(lines, 0).item AS first, state FROM protos"},
        {"name": "of_avros", "sql": "SELECT id, at, price, state, k.customer AS customer FROM avros"},
        {"name": "of_jsons", "sql": "SELECT id, day FROM jsons"},
        {"name": "of_texts", "sql": "SELECT k, id, at FROM texts"},
        {"name": "of_raws", "sql": "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v FROM raws"},
    ],
    "sinks": [
        {"from": "of_protos", "topic": "out", "format": {"type": "protobuf"}},
        {"from": "of_avros", "topic": "out2", "format": {"type": "avro"}, "key": ["id"], "keyFormat": {"type": "avro"}},
        {"from": "of_protos", "name": "as_json", "topic": "out3", "format": {"type": "json", "register": True}},
        *({"from": it, "topic": it} for it in ("of_jsons", "of_texts", "of_raws")),
    ],
    "deadLetter": {"topic": "dead"},
}
GIVEN: dict[str, list[Any]] = {
    "protos": [
        {"id": 1, "at": "2013-07-01T09:30:00Z", "lines": [{"item": "x"}], "state": "PAID"},
        {"id": 2},
        "no JSON",
    ],
    "avros": [
        {"key": {"customer": 9}, "value": {"id": 1, "at": "2013-07-01T09:30:00Z", "price": 1.25}},
        {"id": 2, "price": 3, "state": "PAID"},
    ],
    "jsons": [{"id": 1, "day": "2013-07-01"}, {"day": "2013-07-02"}],
    "texts": [{"key": "a", "value": {"id": 1, "at": "2013-07-01T09:30:00Z"}}, {"at": "2013-07-01T09:30:00Z"}],
    "raws": [{"key": "a", "value": "no JSON"}],
}
PROTO_ROWS = [
    {"id": 1, "at": "2013-07-01T09:30:00.000Z", "first": "x", "state": "PAID"},
    {"id": 2, "at": None, "first": None, "state": "OPEN"},
]
EXPECTED: dict[str, list[Any]] = {
    "of_protos": PROTO_ROWS,
    "as_json": PROTO_ROWS,
    "of_avros": [
        {"id": 1, "at": "2013-07-01T09:30:00.000Z", "price": 1.25, "state": "OPEN", "customer": 9},
        {"id": 2, "at": None, "price": 3.0, "state": "PAID", "customer": None},
    ],
    "of_jsons": [{"id": 1, "day": "2013-07-01"}],
    "of_texts": [{"k": "a", "id": 1, "at": "2013-07-01T09:30:00.000Z"}],
    "of_raws": [{"k": "a", "v": "no JSON"}],
    "dead-letters": [{"topic": "p", "offset": 2}, {"topic": "j", "offset": 1}, {"topic": "t", "offset": 1}],
}


def write_lines(file: Path, lines: Sequence[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize(
    ("command", "sentence"),
    [pytest.param("validate", "pipeline p: valid", marks=pytest.mark.slow), ("test", "all: passed")],
)
def test_given_json_is_encoded_and_decoded_by_the_schemas(
    tmp_path: Path, registry: str, command: str, sentence: str
) -> None:
    SchemaRegistryClient({"url": registry}).register_schema("cases-json", Schema(JSON, "JSON"))
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(pipeline_document(SPEC, is_endless=True)))
    for name, lines in GIVEN.items():
        write_lines(tmp_path / "pipeline.test/all/given" / f"{name}.jsonl", lines)
    for name, lines in EXPECTED.items():
        write_lines(tmp_path / "pipeline.test/all/expect" / f"{name}.jsonl", lines)
    # A process of its own: a JVM that has begun without the connector cannot have it later, and
    # other tests need it.
    done = subprocess.run(
        [sys.executable, "-m", "ottla_spark", command, "--pipeline", str(file), "--registry", registry],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stderr.splitlines() == [sentence]
