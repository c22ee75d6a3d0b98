"""Protobuf records without Spark: framing, projection to the reader's schema, encoding."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as T

from ottla_broker.registry.languages.protobuf_descriptor import parse_descriptor
from ottla_broker.registry.languages.protobuf_schema import print_protobuf
from ottla_spark.errors import PipelineError
from ottla_spark.protobuf_schemas import (
    encode_message_indexes,
    find_message,
    message_at,
    message_indexes,
    parse_file_descriptor,
    read_message_indexes,
)
from ottla_spark.record_schema import RecordSchema, UnusableSchema, pack_files
from ottla_spark.schema_registry import frame_header
from ottla_spark.streaming.encode import schema_of_columns
from ottla_spark.streaming.framed_records import column_type, encode_row
from ottla_spark.streaming.protobuf_records import open_decoder, open_encoder
from ottla_spark.streaming.protobuf_types import to_file_descriptor
from tests.unit.spark.proto_files import class_of, schema_of

AT = datetime.datetime(2013, 7, 1, 9, 30, 0, 250_000, datetime.UTC)

EVERYTHING = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "common.proto";
message Order {
  int32 id = 1;
  optional string city = 2;
  repeated Line lines = 3;
  map<string, double> prices = 4;
  State state = 5;
  oneof payment { string card = 6; int64 cash = 7; }
  google.protobuf.Timestamp at = 8;
  google.protobuf.Duration took = 9;
  google.protobuf.StringValue note = 10;
  google.protobuf.Struct more = 11;
  uint64 big = 12;
  bytes raw = 13;
  repeated uint32 numbers = 14;
  common.Address address = 15;
  message Line { sint64 n = 1; }
  enum State { NEW = 0; PAID = 1; }
}
message Other { int32 id = 1; }
"""
COMMON = """
syntax = "proto3";
package common;
message Address { string street = 1; map<int32, Line> at = 2; message Line { bool b = 1; } }
"""


def decode(writer: RecordSchema, reader: RecordSchema, value: bytes) -> dict[str, Any]:
    columns = column_type(reader)
    assert isinstance(columns, T.StructType)
    return dict(zip(columns.names, open_decoder(writer, reader, 7)(value), strict=True))


def encode_framed(message: Any, *indexes: int) -> bytes:
    return frame_header(7) + encode_message_indexes(indexes or (0,)) + bytes(message.SerializeToString())


def test_types_are_those_of_spark() -> None:
    assert column_type(schema_of(EVERYTHING, common=COMMON)).simpleString() == (
        "struct<id:int,city:string,lines:array<struct<n:bigint>>,prices:map<string,double>,state:string,card:string,"
        "cash:bigint,at:timestamp,took:interval day to second,note:string,more:string,big:decimal(20,0),raw:binary,"
        "numbers:array<bigint>,address:struct<street:string,at:map<int,struct<b:boolean>>>>"
    )


def test_record_with_everything_is_read_and_written_again() -> None:
    schema = schema_of(EVERYTHING, common=COMMON)
    message = class_of(schema)(
        id=-3, city="", lines=[{"n": 2**40}, {"n": -1}], prices={"a": 1.5}, state=1, cash=0, at=AT,
        took=datetime.timedelta(seconds=-1, microseconds=-5), note={"value": "n"}, more={"k": [1, None]},
        big=2**64 - 1, raw=b"\x00\xff", numbers=[0, 2**32 - 1],
    )  # fmt: skip
    message.address.at[4].b = True
    found = decode(schema, schema, encode_framed(message))
    assert found == {
        "id": -3, "city": "", "lines": [(2**40,), (-1,)], "prices": {"a": 1.5}, "state": "PAID", "card": None,
        "cash": 0, "at": AT, "took": datetime.timedelta(seconds=-1, microseconds=-5), "note": "n",
        "more": '{"k": [1.0, null]}', "big": Decimal(2**64 - 1), "raw": b"\x00\xff", "numbers": [0, 2**32 - 1],
        "address": ("", {4: (True,)}),
    }  # fmt: skip
    row = tuple(found.values())
    encode = open_encoder(schema, 7, column_type(schema))
    assert type(message).FromString(encode(row)[6:]) == message


def test_record_without_anything_has_zeros_and_nulls() -> None:
    schema = schema_of(EVERYTHING, common=COMMON)
    assert decode(schema, schema, encode_framed(class_of(schema)())) == {
        "id": 0, "city": None, "lines": [], "prices": {}, "state": "NEW", "card": None, "cash": None, "at": None,
        "took": None, "note": None, "more": None, "big": Decimal(0), "raw": b"", "numbers": [], "address": None,
    }  # fmt: skip


def test_fields_are_matched_by_number_and_the_reader_has_its_defaults() -> None:
    writer = schema_of(
        'syntax = "proto3"; message A { sint32 id = 1; string old = 2; bool flag = 3; B b = 5; int32 kind = 6; '
        "repeated string tags = 7; string one = 8; message B { int32 x = 1; int32 y = 2; } }"
    )
    reader = schema_of(
        'syntax = "proto2"; message A { optional int64 number = 1; optional string added = 9 [default = "none"]; '
        "optional int32 gone = 10; optional int32 flag = 3; optional Inner b = 5; optional K kind = 6; "
        "optional string tags = 7; repeated string one = 8; "
        "message Inner { optional int32 y = 2; optional string z = 3; } enum K { A0 = 0; A1 = 1; } }"
    )
    message = class_of(writer)(id=-5, old="x", flag=True, b={"x": 1, "y": 2}, kind=1, tags=["a", "b"], one="1")
    assert decode(writer, reader, encode_framed(message)) == {
        "number": -5, "added": "none", "gone": None, "flag": 1, "b": (2, None), "kind": "A1", "tags": "b",
        "one": ["1"],
    }  # fmt: skip
    assert decode(writer, reader, encode_framed(class_of(writer)(kind=9)))["kind"] == "9"


@pytest.mark.parametrize(
    ("of_writer", "of_reader", "sentence"),
    [
        ("string", "int32", "its field f = 1 is string, which cannot be read as int32 f"),
        ("double", "float", "its field f = 1 is double, which cannot be read as float f"),
        ("B", "string", "its field f = 1 is B, which cannot be read as string f"),
        ("map<string, int32>", "B", "its field f = 1 is map, which cannot be read as B f"),
        ("google.protobuf.Timestamp", "B", "is google.protobuf.Timestamp, which cannot be read as B f"),
    ],
)
def test_types_that_cannot_be_read_as_the_readers_are_refused(of_writer: str, of_reader: str, sentence: str) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A {{ {} f = 1; }} message B {{ }}'
    writer, reader = schema_of(text.format(of_writer)), schema_of(text.format(of_reader))
    with pytest.raises(ValueError, match=sentence):
        decode(writer, reader, encode_framed(class_of(writer)()))


@pytest.mark.parametrize(
    ("of_writer", "of_reader", "value"),
    [("int64", "int32", 2**31), ("int32", "uint64", -1), ("bytes", "string", b"\xff")],
)
def test_value_that_the_readers_type_cannot_have_is_undecodable(of_writer: str, of_reader: str, value: Any) -> None:
    text = 'syntax = "proto3"; message A {{ {} f = 1; }}'
    writer, reader = schema_of(text.format(of_writer)), schema_of(text.format(of_reader))
    with pytest.raises(ValueError, match="is not a message A of schema 7"):
        decode(writer, reader, encode_framed(class_of(writer)(f=value)))


def test_records_that_are_no_messages_are_undecodable() -> None:
    schema = schema_of(EVERYTHING, common=COMMON)
    other = schema_of(EVERYTHING, "Other", common=COMMON)
    strict = schema_of('syntax = "proto2"; message A { required int32 id = 1; }')
    for value, reader, writer, sentence in (
        (frame_header(7), schema, schema, "ends before the message of schema 7"),
        (frame_header(7) + b"\xff\xff\xff\xff\xff\xff", schema, schema, "ends before the message of schema 7"),
        (
            frame_header(7) + encode_message_indexes((5,)),
            schema,
            schema,
            r"names the message \[5\], which the schema 7 does not have",
        ),
        (frame_header(7) + b"\x02\x01", schema, schema, r"names the message \[-1\]"),
        (
            encode_framed(class_of(other)(id=1), 1),
            schema,
            schema,
            "is a message shop.Other; the reader's schema is shop.Order",
        ),
        (encode_framed(class_of(schema)()) + b"\x08", schema, schema, "is not a message shop.Order of schema 7"),
        (frame_header(7) + b"\0", strict, strict, "it lacks the required id"),
    ):
        with pytest.raises(ValueError, match=sentence):
            decode(writer, reader, value)
    assert decode(schema, other, encode_framed(class_of(other)(id=1), 1)) == {"id": 1}


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=5))
def test_message_indexes_are_read_as_they_were_written(indexes: list[int]) -> None:
    written = b"12345" + encode_message_indexes(indexes) + b"\x07"
    assert read_message_indexes(written, 5) == (tuple(indexes), len(written) - 1)


def test_message_indexes_lead_to_a_nested_message() -> None:
    file = parse_file_descriptor(schema_of(EVERYTHING, common=COMMON).text)
    line = find_message(file, "Order.Line")
    assert line is find_message(file, "shop.Order.Line")
    assert message_at(file, message_indexes(line)) is line
    with pytest.raises(UnusableSchema, match="the schema has no message Nothing; it has Order, Other"):
        find_message(file, "Nothing")


def test_schema_that_cannot_become_columns_is_refused() -> None:
    with pytest.raises(PipelineError, match="the message A contains itself"):
        column_type(schema_of('syntax = "proto3"; message A { repeated A children = 1; }'))
    with pytest.raises(PipelineError, match="not a FileDescriptorSet in base64"):
        column_type(RecordSchema("protobuf", 'syntax = "proto3";'))
    missing = pack_files(parse_descriptor('syntax = "proto3"; import "gone.proto"; message A { }', "default.proto"))
    with pytest.raises(PipelineError, match=r"not a Protobuf schema: .*gone\.proto"):
        column_type(RecordSchema("protobuf", missing))


# -- schemas of columns

SCALARS: tuple[tuple[T.DataType, st.SearchStrategy[Any]], ...] = (
    (T.BooleanType(), st.booleans()),
    (T.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (T.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (T.DoubleType(), st.floats(allow_nan=False)),
    (T.StringType(), st.text(st.characters(exclude_categories=["Cs"]))),
    (T.BinaryType(), st.binary()),
    (T.DecimalType(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    (T.TimestampType(), st.datetimes(timezones=st.just(datetime.UTC))),
    (T.DayTimeIntervalType(), st.timedeltas(datetime.timedelta(-9000), datetime.timedelta(9000))),
)

Typed = tuple[T.DataType, st.SearchStrategy[Any]]


def structs(typed: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def build(fields: list[Typed]) -> Typed:
        type_ = T.StructType([T.StructField(f"c{at}", it[0]) for at, it in enumerate(fields)])
        values = [it if isinstance(type_[at].dataType, T.ArrayType | T.MapType) else st.none() | it
                  for at, (_, it) in enumerate(fields)]  # fmt: skip
        return type_, st.tuples(*values)

    return st.lists(typed, min_size=1, max_size=4).map(build)


def nested(typed: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    one = structs(typed)
    elements = st.sampled_from(SCALARS) | one.map(lambda it: it)
    return (
        one
        | elements.map(lambda it: (T.ArrayType(it[0]), st.lists(_not_null(it), max_size=3)))
        | elements.map(
            lambda it: (
                T.MapType(T.StringType(), it[0]),
                st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), _not_null(it), max_size=3),
            )
        )
    )


def _not_null(typed: Typed) -> st.SearchStrategy[Any]:
    return typed[1]


COLUMNS = structs(st.recursive(st.sampled_from(SCALARS), nested, max_leaves=5))


@given(st.data())
def test_rows_are_read_as_they_were_written(data: st.DataObject) -> None:
    columns, rows = data.draw(COLUMNS)
    assert isinstance(columns, T.StructType)
    row = data.draw(rows)
    schema, _ = schema_of_columns("protobuf", columns, "row")
    assert tuple(open_decoder(schema, schema, 7)(open_encoder(schema, 7, columns)(row))) == row


@given(COLUMNS)
def test_registered_text_has_the_columns_and_types_of_the_descriptor(typed: Typed) -> None:
    columns = typed[0]
    assert isinstance(columns, T.StructType)
    _, text = schema_of_columns("protobuf", columns, "row")
    again = parse_descriptor(print_protobuf(text), "default.proto")
    schema = RecordSchema("protobuf", pack_files(again))
    assert (
        column_type(schema).simpleString()
        == column_type(schema_of_columns("protobuf", columns, "row")[0]).simpleString()
    )


def columns_of(*names: str) -> T.StructType:
    return T.StructType([T.StructField(it, T.LongType()) for it in names])


def numbers(file: FileDescriptorProto) -> dict[str, int]:
    return {it.name: it.number for it in file.message_type[0].field}


def test_columns_keep_their_numbers_and_those_of_columns_that_are_gone_are_not_used_again() -> None:
    first = to_file_descriptor(columns_of("a", "b", "c"), "row")
    second = to_file_descriptor(columns_of("d", "c", "a"), "row", first)
    third = to_file_descriptor(columns_of("b", "a", "e"), "row", second)
    assert [numbers(it) for it in (first, second, third)] == [
        {"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 3, "a": 1}, {"b": 5, "a": 1, "e": 6},
    ]  # fmt: skip
    assert [(it.start, it.end) for it in third.message_type[0].reserved_range] == [(2, 3), (4, 5), (3, 4)]
    parse_file_descriptor(pack_files(third))


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), min_size=2, max_size=6))
def test_a_number_means_one_column_for_ever(versions: list[list[str]]) -> None:
    file = None
    meaning: dict[int, str] = {}
    before: dict[str, int] = {}
    for names in versions:
        file = to_file_descriptor(columns_of(*names), "row", file)
        for name, number in numbers(file).items():
            assert meaning.setdefault(number, name) == name
        assert all(numbers(file)[name] == before[name] for name in before.keys() & set(names))
        before = numbers(file)


@given(st.data())
def test_rows_of_another_version_have_the_columns_that_both_have(data: st.DataObject) -> None:
    kinds = dict(zip("abcdefghi", SCALARS, strict=True))
    chosen = st.lists(st.sampled_from("abcdefghi"), min_size=1, unique=True)
    versions = [T.StructType([T.StructField(it, kinds[it][0]) for it in data.draw(chosen)]) for _ in range(2)]
    files = [to_file_descriptor(versions[0], "row")]
    files.append(to_file_descriptor(versions[1], "row", files[0]))
    schemas = [RecordSchema("protobuf", pack_files(it)) for it in files]
    for writer, reader in ((0, 1), (1, 0)):
        row = {it: data.draw(st.none() | kinds[it][1]) for it in versions[writer].names}
        value = open_encoder(schemas[writer], 7, versions[writer])(tuple(row.values()))
        assert decode(schemas[writer], schemas[reader], value) == {it: row.get(it) for it in versions[reader].names}


def test_columns_that_protobuf_does_not_have_are_refused() -> None:
    for type_, sentence in (
        (T.DateType(), "the column v is date, which Protobuf does not have; cast it"),
        (T.DecimalType(9, 2), r"the column v is decimal\(9,2\)"),
        (T.ArrayType(T.ArrayType(T.LongType())), "the column v is array<array<bigint>>"),
        (T.MapType(T.DoubleType(), T.LongType()), "the column v is map<double,bigint>"),
    ):
        with pytest.raises(PipelineError, match=sentence):
            schema_of_columns("protobuf", T.StructType([T.StructField("v", type_)]), "row")
    with pytest.raises(PipelineError, match="the column 'a b' is not a Protobuf name"):
        schema_of_columns("protobuf", columns_of("a b"), "row")


def test_rows_that_do_not_fit_a_given_schema_are_refused() -> None:
    schema = schema_of(
        'syntax = "proto3"; message A { int32 i = 1; E e = 2; repeated string s = 3; enum E { E0 = 0; } }'
    )

    def encode(type_: T.DataType, name: str, value: Any) -> bytes:
        return encode_row(schema, 7, T.StructType([T.StructField(name, type_)]).json(), Row(**{name: value}))

    for type_, name, value, sentence in (
        (T.LongType(), "i", 2**31, "a row does not fit the schema 7: .*out of range"),
        (T.LongType(), "i", None, "i is null, and its field is neither optional nor part of a oneof"),
        (T.StringType(), "e", "X", "e is 'X', which is none of E0"),
        (T.ArrayType(T.StringType()), "s", [None], "Protobuf has no null in lists and maps"),
        (T.StringType(), "i", "1", "the column i is string, and the field i is int32; cast it"),
        (T.StringType(), "s", "1", "the column s is string, and the field s is repeated string; cast it"),
        (T.LongType(), "x", 1, "the message A has no field x; it has i, e, s"),
    ):
        with pytest.raises(PipelineError, match=sentence):
            encode(type_, name, value)
    assert encode(T.StringType(), "e", "E0") == frame_header(7) + b"\0"
