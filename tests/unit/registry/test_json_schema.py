"""JSON Schema in the registry: validity, references and compatibility."""

import json
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.languages.json_compatibility import JsonComparison
from ottla_broker.registry.languages.json_schema import JsonDocument, load_references, print_json_schema
from ottla_broker.registry.schema import NamedSchema
from tests.unit.registry.random_schemas import JsonSchemas

OBJECT = {"type": "object"}
CLOSED = {"type": "object", "additionalProperties": False}
DRAFT_4, DRAFT_6, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
DRAFT_2019, DRAFT_2020 = (f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12"))
TEXT = {"properties": {"a": {"type": "string"}}}


def incompatibility_kinds(reader: Any, writer: Any, references: dict[str, Any] | None = None) -> list[str]:
    known = references or {}
    comparison = JsonComparison(JsonDocument(reader, known), JsonDocument(writer, known))
    return [one.kind for one in comparison.find_incompatibilities()]


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"strin"}', '{"$ref":"#/definitions/none"}', '{"$ref":"none.json"}', "{", "[]", '{"pattern":"["}',
        '{"$ref":"http://127.0.0.1:1/a.json"}', '{"$ref":"file:///etc/passwd"}',
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        print_json_schema(text)


@pytest.mark.parametrize("draft", [DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, DRAFT_2020])
def test_references_are_found_by_their_names(draft: str) -> None:
    reference = NamedSchema("user.json", "JSON", '{"definitions":{"name":{"type":"string"}}}')
    ref = {"$schema": draft, "properties": {"n": {"$ref": "user.json#/definitions/name"}}}
    assert json.loads(print_json_schema(json.dumps(ref), [reference])) == ref
    number = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert incompatibility_kinds(number, OBJECT | ref, load_references([reference])) == ["TYPE_CHANGED"]


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (OBJECT | TEXT, OBJECT, ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (OBJECT | TEXT, CLOSED, []),
        (CLOSED, CLOSED | TEXT, ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        (OBJECT, CLOSED | TEXT, []),
        (CLOSED, OBJECT, ["ADDITIONAL_PROPERTIES_REMOVED"]),
        (OBJECT | {"required": ["a"]}, OBJECT, ["REQUIRED_ATTRIBUTE_ADDED"]),
        (OBJECT, OBJECT | {"required": ["a"]}, []),
        ({"type": "integer"}, {"type": "number"}, ["TYPE_CHANGED"]),
        ({"type": "number"}, {"type": "integer"}, []),
        ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, ["MAX_LENGTH_DECREASED"]),
        ({"type": "integer", "minimum": 1}, {"type": "integer"}, ["MINIMUM_ADDED"]),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_NARROWED"]),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, []),
        ({"enum": [True]}, {"enum": [1]}, ["ENUM_ARRAY_NARROWED"]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}, []),
        ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "null"}]}, ["SUM_TYPE_NARROWED"]),
        ({"oneOf": [{"type": "string"}, True]}, True, ["SUM_TYPE_CHANGED"]),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, ["PATTERN_CHANGED"]),
        ({"not": {"type": "string"}}, {"type": "integer"}, []),
    ],
)
def test_reader_and_writer_have_the_expected_incompatibilities(reader: Any, writer: Any, expected: list[str]) -> None:
    assert incompatibility_kinds(reader, writer) == expected


TUPLE = [{"type": "string"}, {"type": "integer"}]


@pytest.mark.parametrize(
    ("draft", "reader", "writer", "expected"),
    [
        (DRAFT_4, {"maximum": 5, "exclusiveMaximum": True}, {"maximum": 5}, ["MAXIMUM_DECREASED"]),
        (DRAFT_6, {"exclusiveMaximum": 5}, {"maximum": 5}, ["MAXIMUM_DECREASED"]),
        (DRAFT_7, {"items": TUPLE}, {"items": [{"type": "string"}, {"type": "number"}]}, ["TYPE_CHANGED"]),
        (DRAFT_2019, {"items": TUPLE}, {"items": [{"type": "string"}, {"type": "number"}]}, ["TYPE_CHANGED"]),
        (
            DRAFT_2020,
            {"prefixItems": TUPLE},
            {"prefixItems": [{"type": "string"}, {"type": "number"}]},
            ["TYPE_CHANGED"],
        ),
        (
            DRAFT_7,
            {"$ref": "#/$defs/n", "$defs": {"n": {}}, "type": "string"},
            {"type": "integer"},
            [],
        ),  # beside `$ref`: ignored
        (
            DRAFT_2020,
            {"$ref": "#/$defs/n", "$defs": {"n": {}}, "type": "string"},
            {"type": "integer"},
            ["TYPE_CHANGED"],
        ),
        (DRAFT_2019, {"dependentRequired": {"a": ["b"]}}, {}, ["DEPENDENTREQUIRED_CHANGED"]),
        (DRAFT_2020, {"unevaluatedProperties": False}, {}, ["UNEVALUATEDPROPERTIES_CHANGED"]),
        (DRAFT_2020, {"$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "string"}}}, {"type": "string"}, []),
    ],
)
def test_keywords_have_the_meaning_of_their_draft(draft: str, reader: Any, writer: Any, expected: list[str]) -> None:
    schemas = [{"$schema": draft, **it} for it in (reader, writer)]
    for schema in schemas:
        assert json.loads(print_json_schema(json.dumps(schema))) == schema
    assert incompatibility_kinds(*schemas) == expected


@pytest.mark.parametrize(("draft", "expected"), [(DRAFT_2020, ["MIN_LENGTH_ADDED"]), (DRAFT_7, [])])
def test_keywords_beside_a_reference_count_by_the_draft_of_the_schema_that_has_them(
    draft: str, expected: list[str]
) -> None:
    of_other_draft = DRAFT_7 if draft == DRAFT_2020 else DRAFT_2020
    name = NamedSchema("name.json", "JSON", json.dumps({"$schema": of_other_draft, "type": "string"}))
    writer = {"$schema": draft, "$ref": "name.json"}
    assert incompatibility_kinds(writer | {"minLength": 5}, writer, load_references([name])) == expected


def test_a_schema_that_refers_to_itself_is_compared() -> None:
    tree = {
        "$ref": "#/definitions/t",
        "definitions": {"t": OBJECT | {"properties": {"n": {"$ref": "#/definitions/t"}}}},
    }
    assert incompatibility_kinds(tree, json.loads(json.dumps(tree))) == []


@settings(max_examples=2000, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_compatible_schemas_accept_every_value_of_the_writer(random: Random) -> None:
    schemas = JsonSchemas(random)
    writer = schemas.new_schema()
    reader = schemas.similar_schema(writer)
    assume(not incompatibility_kinds(reader, writer))
    written, read = jsonschema.Draft7Validator(writer), jsonschema.Draft7Validator(reader)
    for _ in range(40):
        value = schemas.new_value()
        if written.is_valid(value):
            assert read.is_valid(value), (reader, writer, value)
