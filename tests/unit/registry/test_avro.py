"""Avro in the registry: the printed form, validity and compatibility."""

import io
import json
from random import Random
from typing import Any

import avro.compatibility
import avro.schema
import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.registry.languages.avro_compatibility import find_avro_incompatibilities, parse_avro
from ottla_broker.registry.languages.avro_schema import print_avro
from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.schema import NamedSchema
from tests.unit.registry.random_schemas import AvroSchemas


def incompatibility_kinds(reader: Any, writer: Any) -> list[str]:
    found = find_avro_incompatibilities(parse_avro(json.dumps(reader)), parse_avro(json.dumps(writer)))
    return [one.kind for one in found]


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields]}


def field(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('{"type": "string"}', '"string"'),
        ("string", '"string"'),
        ('[ "null", {"type":"int"} ]', '["null","int"]'),
        ('{"type":"array","items":{"type":"long"}}', '{"type":"array","items":"long"}'),
        ('{"type":{"type":"string"}}', None),
        ('{"logicalType":"date","type":"int"}', '{"type":"int","logicalType":"date"}'),
        (
            '{"namespace":"x","fields":[{"type":"y.E","name":"e"}],"name":"R","type":"record"}',
            None,  # y.E is not defined
        ),
        (
            '{"fields":[{"type":["null","x.R"],"name":"next","default":null}],"name":"x.R","type":"record","doc":"d"}',
            '{"type":"record","name":"R","namespace":"x","doc":"d","fields":[{"name":"next","type":["null","R"],"default":null}]}',
        ),
        ('{"type":"enum","name":"E","symbols":["é"],"doc":"ü"}', None),
        ('{"type":"record","name":"R"}', None),
        ('{"type":"map"}', None),
        ("[]]", None),
        ("nonsense words", None),
    ],
)
def test_a_schema_is_printed_in_one_form_or_refused(text: str, printed: str | None) -> None:
    if printed is None:
        with pytest.raises(SchemaError):
            print_avro(text)
    else:
        assert print_avro(text) == printed
        assert print_avro(printed) == printed


def test_a_schema_uses_types_of_its_references() -> None:
    reference = NamedSchema("x.User", "AVRO", '{"type":"record","name":"User","namespace":"x","fields":[]}')
    order = json.dumps(record(field("by", "x.User"), name="Order"))
    assert print_avro(order, [reference])
    with pytest.raises(SchemaError, match=r"x\.User"):
        print_avro(order)


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("long", "int", []),
        ("int", "long", ["TYPE_MISMATCH"]),
        (record(field("a"), field("b")), record(field("a")), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
        (record(field("a"), field("b", default=1)), record(field("a")), []),
        (record(field("a")), record(field("a"), field("b")), []),
        (record(field("b", aliases=["a"])), record(field("a")), []),
        (record(name="Q"), record(), ["NAME_MISMATCH"]),
        (record(name="Q") | {"aliases": ["R"]}, record(), []),
        (["null", "int"], "int", []),
        ("int", ["null", "int"], ["TYPE_MISMATCH"]),
        (["null", "string"], ["null", "int"], ["MISSING_UNION_BRANCH"]),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            ["MISSING_ENUM_SYMBOLS"],
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            [],
        ),
        (
            {"type": "fixed", "name": "F", "size": 4},
            {"type": "fixed", "name": "F", "size": 5},
            ["FIXED_SIZE_MISMATCH"],
        ),
        (
            record(field("next", ["null", "R"], default=None), field("x", "long")),
            record(field("next", ["null", "R"], default=None), field("x", "int")),
            [],
        ),
        (
            record(field("x", "int"), field("next", ["null", "R"], default=None)),
            record(field("x", "long"), field("next", ["null", "R"], default=None)),
            ["TYPE_MISMATCH"],
        ),
    ],
)
def test_reader_and_writer_have_the_expected_incompatibilities(reader: Any, writer: Any, expected: list[str]) -> None:
    assert incompatibility_kinds(reader, writer) == expected


def test_an_incompatibility_names_the_field_and_its_path() -> None:
    inner = record(field("deep", record(field("a"), field("b"), name="I")))
    old = record(field("deep", record(field("a"), name="I")))
    [one] = find_avro_incompatibilities(parse_avro(json.dumps(inner)), parse_avro(json.dumps(old)))
    assert one.subject == "b" and one.path == "/fields/0/type/fields/1" and "'b'" in str(one)


@settings(max_examples=2000, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_compatible_schemas_can_be_read_and_avros_own_checker_agrees(random: Random) -> None:
    schemas = AvroSchemas(random)
    writer = schemas.new_schema()
    reader = schemas.similar_schema(writer)
    is_compatible = not incompatibility_kinds(reader, writer)
    checker = avro.compatibility.ReaderWriterCompatibilityChecker()
    their_result = checker.get_compatibility(
        avro.schema.parse(json.dumps(reader)), avro.schema.parse(json.dumps(writer))
    )
    is_compatible_for_avro = their_result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible
    assert is_compatible == is_compatible_for_avro, (reader, writer, their_result.messages)
    if is_compatible:
        parsed_writer, parsed_reader = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        for _ in range(3):
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, parsed_writer, schemas.new_value(writer))
            fastavro.schemaless_reader(io.BytesIO(buffer.getvalue()), parsed_writer, parsed_reader)


def test_types_that_each_use_another_twice_are_compared_in_linear_time() -> None:
    levels: list[Any] = ["int"]
    for number in range(200):
        inner = levels[-1]
        name = f"T{number}"
        again = inner if isinstance(inner, str) else inner["name"]
        levels.append(record(field("a", inner), field("b", again), name=name))
    assert incompatibility_kinds(levels[-1], levels[-1]) == []
