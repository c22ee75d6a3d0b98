"""Protobuf in the registry: text and descriptors, references and compatibility."""

from collections.abc import Sequence
from random import Random

import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.languages.protobuf_compatibility import find_protobuf_incompatibilities
from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from ottla_broker.registry.languages.protobuf_schema import print_protobuf, serialize_protobuf
from ottla_broker.registry.schema import NamedSchema

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option java_package = "dev.shop";
// What somebody buys.
message Order {
  reserved 5, 7 to 9;
  reserved "old";
  string id = 1;
  optional int32 n = 2;
  repeated Line lines = 3;
  map<string, int64> counts = 4;
  google.protobuf.Timestamp at = 6;
  oneof pay { string card = 10; bool cash = 11; }
  enum Kind { option allow_alias = true; A = 0; B = 1 [deprecated = true]; C = 1; }
  Kind kind = 12 [deprecated = true, json_name = "kk"];
  message Line { string sku = 1; int64 price = 2; }
}
service Orders { rpc Get (Order) returns (stream Order); }
"""
HEAD = 'syntax="proto3"; package p; '
SCALARS = ("int32", "int64", "uint32", "bool", "sint32", "sint64", "fixed32", "sfixed64", "string", "bytes", "double")


def incompatibility_kinds(reader: str, writer: str) -> list[str]:
    return [one.kind for one in find_protobuf_incompatibilities(load_descriptor(reader), load_descriptor(writer))]


def test_a_schema_is_the_same_as_text_and_as_descriptor() -> None:
    serialized = serialize_protobuf(ORDER)
    printed = print_protobuf(serialized)
    assert serialize_protobuf(printed) == serialized
    assert print_protobuf(printed) == printed
    assert print_protobuf(ORDER, normalize=True) == print_protobuf(serialized, normalize=True)
    assert "// What somebody buys." in print_protobuf(ORDER)


def test_octal_and_hexadecimal_numbers_are_reserved() -> None:
    printed = print_protobuf(HEAD + "message M { reserved 010, 0x10 to 021; }", normalize=True)
    assert "reserved 8, 16 to 17;" in printed


@pytest.mark.parametrize("body", ["int32 a = 99999999999;", "enum E { A = 0; B = 99999999999; }"])
def test_a_number_out_of_range_is_refused(body: str) -> None:
    with pytest.raises(SchemaError, match="not a Protobuf schema"):
        print_protobuf(HEAD + f"message M {{ {body} }}")


def test_proto2_with_groups_defaults_and_extensions_is_printed() -> None:
    text = """
syntax = "proto2";
message M {
  required string a = 1 [default = "x\\"y"];
  optional group G = 2 { optional int32 b = 1 [default = -3]; }
  extensions 100 to max;
}
extend M { optional int32 more = 100; }
"""
    serialized = serialize_protobuf(text)
    assert serialize_protobuf(print_protobuf(serialized)) == serialized


@pytest.mark.parametrize(
    "text",
    ["message", 'syntax="proto3"; message A { B b = 1; }', 'syntax="proto3"; message A { int32 a = 1; int32 a = 2; }',
     'syntax="proto3"; import "x.proto";', 'syntax="proto3"; message A { int32 a = 0; }', "{}",
     "message A { int32 = }"],
)  # fmt: skip
def test_an_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        print_protobuf(text)


def test_imports_are_references() -> None:
    x = NamedSchema("x.proto", "PROTOBUF", 'syntax="proto3"; package o; message X { int32 a = 1; }')
    y = NamedSchema(
        "y.proto", "PROTOBUF", serialize_protobuf('syntax="proto3"; import "x.proto"; message Y { o.X x = 1; }', [x])
    )
    assert print_protobuf('syntax="proto3"; import "y.proto"; message A { Y y = 1; }', [x, y])


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("message A { string a = 1; }", "message A { int32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("message A { bytes a = 1; }", "message A { string b = 1; string c = 2; }", []),
        ("message B { }", "message A { }", ["MESSAGE_REMOVED"]),
        ("message A { repeated int32 a = 1; }", "message A { int32 a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        ("message A { repeated string a = 1; }", "message A { string a = 1; }", []),
        ("message A { A a = 1; }", "message A { string a = 1; }", ["FIELD_KIND_CHANGED"]),
        (
            "message A { B a = 1; } message B { } message C { }",
            "message A { C a = 1; } message B { } message C { }",
            ["FIELD_NAMED_TYPE_CHANGED"],
        ),
        (
            "message A { oneof x { string a = 1; string b = 2; } }",
            "message A { string a = 1; string b = 2; }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        ),
        (
            "message A { oneof x { string a = 1; } }",
            "message A { oneof x { string a = 1; string b = 2; } }",
            ["ONEOF_FIELD_REMOVED"],
        ),
        ("enum E { Z = 0; Y = 1; } message A { E e = 1; }", "enum E { Z = 0; } message A { E e = 1; }", []),
    ],
)
def test_reader_and_writer_have_the_expected_incompatibilities(
    reader: str, writer: str, expected: Sequence[str]
) -> None:
    assert incompatibility_kinds(HEAD + reader, HEAD + writer) == expected


def random_message(random: Random) -> str:
    numbers = random.sample(range(1, 6), 3)
    label = "repeated " if random.random() < 0.2 else ""
    fields = [f"{label if at else ''}{random.choice(SCALARS)} f{at} = {number};" for at, number in enumerate(numbers)]
    return f"{HEAD}message A {{ {' '.join(fields)} }}"


@settings(max_examples=2000, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_compatible_schemas_are_parsed_without_unknown_wire_types(random: Random) -> None:
    writer, reader = random_message(random), random_message(random)
    if incompatibility_kinds(reader, writer):
        return
    written = load_descriptor(writer).message_types_by_name["A"]
    message = message_factory.GetMessageClass(written)()
    for field in written.fields:
        value: object = {9: "text", 12: b"text", 1: 1.0, 8: True}.get(field.type, 1)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    read = load_descriptor(reader).message_types_by_name["A"]
    parsed = message_factory.GetMessageClass(read)()
    parsed.ParseFromString(message.SerializeToString())
    present = {field.number for field, _ in parsed.ListFields()}
    assert {field.number for field in written.fields} & set(read.fields_by_number) <= present
