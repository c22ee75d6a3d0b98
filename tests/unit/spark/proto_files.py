"""Protobuf schemas of tests, from their text."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from ottla_broker.registry.languages.protobuf_descriptor import parse_descriptor
from ottla_spark.protobuf_schemas import find_message, parse_file_descriptor
from ottla_spark.record_schema import RecordSchema, pack_files


def schema_of(text: str, message: str = "", **imported: str) -> RecordSchema:
    """`imported`: texts of other files, by their names without .proto."""
    files: list[FileDescriptorProto] = [parse_descriptor(it, f"{name}.proto") for name, it in imported.items()]
    return RecordSchema("protobuf", pack_files(*files, parse_descriptor(text, "default.proto")), message)


def class_of(schema: RecordSchema) -> Any:
    return GetMessageClass(find_message(parse_file_descriptor(schema.text), schema.message))
