"""What the registry asks of a schema's language, for each of them. Each function raises
SchemaError.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from ottla_broker.registry.languages import avro_schema
from ottla_broker.registry.languages.avro_compatibility import find_avro_incompatibilities, parse_avro
from ottla_broker.registry.languages.incompatibility import Incompatibility, SchemaError
from ottla_broker.registry.schema import NamedSchema, SchemaType


class SchemaSource(msgspec.Struct, frozen=True):
    """A schema with what it refers to, what others need before them."""

    type: str
    text: str
    references: tuple[NamedSchema, ...] = ()


RESOLVED: Final = "resolved"
SERIALIZED: Final = "serialized"


def print_schema(source: SchemaSource, *, normalize: bool) -> str:
    """The text that the registry keeps."""
    match source.type:
        case SchemaType.avro:
            return avro_schema.print_avro(source.text, source.references, normalize=normalize)
        case _:
            raise SchemaError(f"unknown schema type {source.type}")


def find_incompatibilities(reader: SchemaSource, writer: SchemaSource) -> list[Incompatibility]:
    """Why `reader` cannot read what `writer` has written."""
    match reader.type:
        case SchemaType.avro:
            of_reader = parse_avro(reader.text, reader.references)
            return find_avro_incompatibilities(of_reader, parse_avro(writer.text, writer.references))
        case _:
            raise SchemaError(f"unknown schema type {reader.type}")


def format_schema(source: SchemaSource, form: str) -> str:
    """The text in another form; unknown forms change nothing."""
    match source.type, form:
        case SchemaType.avro, "resolved":
            return avro_schema.resolve_avro(source.text, source.references)
        case _:
            return source.text


def validate_references(references: Sequence[NamedSchema]) -> None:
    names = [one.name for one in references]
    if len(set(names)) < len(names):
        raise SchemaError("two references have the same name")
