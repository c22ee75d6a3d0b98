"""Schemas of records, complete with the schemas that they refer to, for the codecs in executors."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final, Literal

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from ottla_spark.schema_registry import RegisteredSchema, SchemaRegistry

SchemaType = Literal["avro", "protobuf", "json"]

FORMS: Final[dict[SchemaType, str]] = {"avro": "resolved", "protobuf": "serialized", "json": ""}
"""The form in which the registry is asked for schemas of a type."""


class UnusableSchema(Exception):
    """The schema is not of the type that the format has, or records cannot be read with it. The
    text is one sentence.
    """


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """`text`: JSON for Avro and JSON Schema; for Protobuf a FileDescriptorSet in base64, whose last
    file is the schema's. `message`: name of a Protobuf message, empty for the first.
    `references`: names and texts of the JSON Schemas that this one refers to.
    """

    type: SchemaType
    text: str
    message: str = ""
    references: tuple[tuple[str, str], ...] = ()


def gather_schema(
    registry: SchemaRegistry, found: RegisteredSchema, type_: SchemaType, message: str = ""
) -> RecordSchema:
    """A schema of the registry, in the form of its type, with those that it refers to. Raises
    UnusableSchema and PipelineError.
    """
    if found.type != type_.upper():
        raise UnusableSchema(f"the schema {found.id} is of type {found.type}, not {type_.upper()}")
    if type_ == "avro":
        return RecordSchema(type_, found.text)
    others = registry.referenced_schemas(found, FORMS[type_])
    if type_ == "json":
        return RecordSchema(type_, found.text, references=tuple((name, it.text) for name, it in others.items()))
    files = [_file(it.text, name) for name, it in others.items()]
    return RecordSchema(type_, pack_files(*files, _file(found.text, _main_name(others))), message)


def pack_files(*files: FileDescriptorProto) -> str:
    """A FileDescriptorSet in base64."""
    return base64.b64encode(FileDescriptorSet(file=files).SerializeToString()).decode()


def _file(serialized: str, name: str) -> FileDescriptorProto:
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    file.name = name
    return file


def _main_name(others: dict[str, RegisteredSchema]) -> str:
    """A file name that no imported file has."""
    name = "default.proto"
    while name in others:
        name = f"_{name}"
    return name
