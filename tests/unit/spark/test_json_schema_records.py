"""JSON records with a JSON Schema, without Spark: columns, validity, encoding."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from ottla_spark.errors import PipelineError
from ottla_spark.record_schema import RecordSchema
from ottla_spark.schema_registry import NO_REGISTRY, frame_header
from ottla_spark.streaming.encode import schema_of_columns
from ottla_spark.streaming.framed_records import column_type, decode_value, encode_row
from ottla_spark.streaming.json_schema_records import open_decoder, open_encoder
from tests.unit.spark.row_strategies import row_types

AT = datetime.datetime(2013, 7, 1, 9, 30, 0, 250_000, datetime.UTC)


def schema_of(schema: Any, **references: Any) -> RecordSchema:
    return RecordSchema(
        "json", json.dumps(schema), references=tuple((n, json.dumps(it)) for n, it in references.items())
    )


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def decode(value: Any, reader: RecordSchema, writer: RecordSchema | None = None) -> dict[str, Any]:
    columns = column_type(reader)
    assert isinstance(columns, T.StructType)
    found = open_decoder(writer or reader, reader, 7)(frame_header(7) + json.dumps(value).encode())
    return dict(zip(columns.names, found, strict=True))


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"const": 3}, "bigint"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "t"}, "bigint"),
        ({"type": "array", "items": {"type": "number"}}, "array<double>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"properties": {"a": {"type": "integer"}}}, "struct<a:bigint>"),
        ({"$ref": "#/$defs/point"}, "struct<other:struct<n:bigint>,x:double>"),
        ({"$ref": "other.json"}, "struct<n:bigint>"),
        ({"allOf": [{"$ref": "other.json"}, {"properties": {"m": {"type": "string"}}}]}, "struct<n:bigint,m:string>"),
        # values that have no type in Spark are JSON
        ({}, "string"),
        (True, "string"),
        ({"type": "object"}, "string"),
        ({"type": "array"}, "string"),
        ({"type": ["integer", "string"]}, "string"),
        ({"oneOf": [{"type": "integer"}, {"type": "object"}]}, "string"),
    ],
)
def test_types_are_those_of_spark(schema: Any, type_: str) -> None:
    root = record(c=schema) | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"point": record(x={"type": "number"}, other={"$ref": "other.json"})},
    }
    other = record(n={"$ref": "#/$defs/n"}) | {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"n": {"type": "integer"}},
    }  # fmt: skip
    assert column_type(schema_of(root, **{"other.json": other})).simpleString() == f"struct<c:{type_}>"


def test_record_is_read() -> None:
    schema = schema_of(
        record(
            id={"type": "integer"},
            at={"type": "string", "format": "date-time"},
            day={"type": "string", "format": "date"},
            raw={"type": "string", "contentEncoding": "base64"},
            tags={"type": "array", "items": {"type": ["string", "null"]}},
            more={}, line=record(n={"type": "number"}), state={"enum": ["A"], "default": "A"}, gone={"type": "string"},
        )
    )  # fmt: skip
    value = {
        "id": 3.0, "at": "2013-07-01T11:30:00.25+02:00", "day": "2013-07-01", "raw": "eA==", "tags": ["a", None],
        "more": {"k": [1]}, "line": {"n": 1, "unknown": 1}, "unknown": 2,
    }  # fmt: skip
    assert decode(value, schema) == {
        "id": 3, "at": AT, "day": AT.date(), "raw": b"x", "tags": ["a", None], "more": '{"k": [1]}', "line": (1.0,),
        "state": "A", "gone": None,
    }  # fmt: skip


def test_record_has_to_be_valid_by_the_writers_schema_and_by_the_readers() -> None:
    writer = schema_of(record(id={"type": "integer", "maximum": 9}, old={"type": "string"}))
    reader = schema_of(record(id={"type": "integer"}, new={"type": "integer", "default": 4}) | {"required": ["id"]})
    assert decode({"id": 1, "old": "x"}, reader, writer) == {"id": 1, "new": 4}
    for value, sentence in (
        ({"id": 10}, "is not valid by schema 7: 10 is greater than the maximum of 9 at /id"),
        ({"old": "x"}, 'is not valid by the reader\'s schema: "id" is a required property'),
    ):
        with pytest.raises(ValueError, match=sentence):
            decode(value, reader, writer)


def test_records_that_are_invalid_or_do_not_fit_the_columns_are_undecodable() -> None:
    schema = schema_of(
        record(
            id={"type": "integer"},
            day={"type": "string", "format": "date"},
            f={"type": "number"},
            s={"type": "string"},
            at={"type": "string", "format": "date-time"},
        )
    )
    for text, sentence in (
        (b"{", "is not JSON after the id of its schema"),
        (b"\xff", "is not JSON after the id of its schema"),
        (b'{"id": "1"}', 'is not valid by the reader\'s schema: "1" is not of type "integer" at /id'),
        (
            b'{"id": 9223372036854775808}',
            "does not fit the columns .*: 9223372036854775808 is not in the range of BIGINT",
        ),
        (b'{"day": "tomorrow"}', "is not valid by the reader's schema: .tomorrow. is not a .date. at /day"),
        (b"[]", "is not valid by the reader's schema"),
        (b'{"f": NaN}', "is not JSON after the id of its schema: it has NaN"),
        (b'{"f": 1e999}', "is not valid by the reader's schema"),
        (b'{"s": "\\uD800"}', "is not JSON after the id of its schema: .*surrogates not allowed"),
        (b'{"at": "0001-01-01T00:00:00+14:00"}', "does not fit the columns of the reader's schema"),
        (b"[" * 100_000, "of schema 7 is nested too deeply"),
    ):
        *columns, error = decode_value(NO_REGISTRY, schema, ["id", "day", "f", "s", "at"], frame_header(7) + text)
        assert columns == [None] * 5
        assert re.search(f"^the value {sentence}", error), error


def test_schema_that_cannot_become_columns_is_refused() -> None:
    tree = record(children={"type": "array", "items": {"$ref": "#"}})
    for schema, sentence in (
        (tree, "the schema # contains itself"),
        ({"type": "nothing"}, "not a JSON Schema"),
        (record(a={"$ref": "gone.json"}), "not a JSON Schema: .*gone"),
        ("x", "not a JSON Schema"),
    ):
        with pytest.raises(PipelineError, match=sentence):
            column_type(schema_of(schema))


# -- from rows to JSON


@given(st.data())
def test_rows_are_read_as_they_were_written(data: st.DataObject) -> None:
    columns, rows = data.draw(row_types(names="c {}"))
    assert isinstance(columns, T.StructType)
    row = data.draw(rows)
    schema, _ = schema_of_columns("json", columns, "row")
    assert column_type(schema).simpleString() == columns.simpleString()
    assert open_decoder(schema, schema, 7)(open_encoder(schema, 7, columns)(row)) == row


def encode(schema: RecordSchema, row: tuple[Any, ...], **columns: T.DataType) -> Any:
    type_ = T.StructType([T.StructField(name, it) for name, it in columns.items()])
    return json.loads(encode_row(schema, 7, type_.json(), row)[5:])


def test_rows_are_written_by_a_given_schema() -> None:
    schema = schema_of(
        record(id={"type": "integer"}, note={"type": "string"}, maybe={"type": ["string", "null"]}, more={})
        | {"required": ["id"]}
    )
    text = T.StringType()
    found = encode(schema, (1, None, None, '{"a": 1}'), id=T.IntegerType(), note=text, maybe=text, more=text)
    assert found == {"id": 1, "maybe": None, "more": {"a": 1}}
    for columns, value, sentence in (
        ({"id": T.LongType()}, None, 'a row does not fit the schema 7: "id" is a required property'),
        ({"id": text}, "x", 'a row does not fit the schema 7: "x" is not of type "integer" at /id'),
        ({"x": text}, "x", "the schema has no property x; it has id, note, maybe, more"),
    ):
        with pytest.raises(PipelineError, match=sentence):
            encode(schema, (value,), **columns)


def test_columns_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(PipelineError, match=r"the column d is decimal\(9,2\), which JSON does not have; cast it"):
        schema_of_columns("json", T.StructType([T.StructField("d", T.DecimalType(9, 2))]), "row")
    schema, _ = schema_of_columns("json", T.StructType([T.StructField("f", T.DoubleType())]), "row")
    with pytest.raises(PipelineError, match="a row does not fit the schema 7"):
        encode(schema, (float("nan"),), f=T.DoubleType())


def test_patterns_are_matched_in_linear_time_or_refused() -> None:
    schema = schema_of(record(name={"type": "string", "pattern": "^(a+)+$"}))
    with pytest.raises(ValueError, match="name"):
        decode({"name": "a" * 30_000 + "!"}, schema)
    for pattern in (r"^(a|aa)+\1$", "^(?=(a+)+$)a*$"):
        with pytest.raises(PipelineError, match="is not a"):
            column_type(schema_of(record(name={"type": "string", "pattern": pattern})))
