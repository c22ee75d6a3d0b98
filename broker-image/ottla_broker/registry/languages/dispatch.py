"""The operations that the registry needs of a schema language, for each language. Each function
raises SchemaError.
"""

from collections.abc import Sequence

from ottla_broker.registry.languages import avro_schema, json_schema, protobuf_descriptor, protobuf_schema
from ottla_broker.registry.languages.avro_compatibility import find_avro_incompatibilities, parse_avro
from ottla_broker.registry.languages.incompatibility import Incompatibility, SchemaError
from ottla_broker.registry.languages.json_compatibility import JsonComparison
from ottla_broker.registry.languages.json_schema import JsonDocument
from ottla_broker.registry.languages.protobuf_compatibility import find_protobuf_incompatibilities
from ottla_broker.registry.schema import NamedSchema, SchemaSource, SchemaType


def print_schema(source: SchemaSource, *, normalize: bool) -> str:
    """The text that the registry stores, of a valid schema."""
    validate_references(source.references)
    match source.type:
        case SchemaType.avro:
            return avro_schema.print_avro(source.text, source.references, normalize=normalize)
        case SchemaType.json:
            return json_schema.print_json_schema(source.text, source.references, normalize=normalize)
        case SchemaType.protobuf:
            return protobuf_schema.print_protobuf(source.text, source.references, normalize=normalize)
    raise SchemaError(f"unknown schema type {source.type}")


def find_incompatibilities(reader: SchemaSource, writer: SchemaSource) -> list[Incompatibility]:
    """The reasons why `reader` cannot read what `writer` has written."""
    match reader.type:
        case SchemaType.avro:
            of_reader = parse_avro(reader.text, reader.references)
            return find_avro_incompatibilities(of_reader, parse_avro(writer.text, writer.references))
        case SchemaType.json:
            return JsonComparison(_document(reader), _document(writer)).find_incompatibilities()
        case SchemaType.protobuf:
            descriptors = [protobuf_descriptor.load_descriptor(it.text, it.references) for it in (reader, writer)]
            return find_protobuf_incompatibilities(*descriptors)
    raise SchemaError(f"unknown schema type {reader.type}")


def _document(source: SchemaSource) -> JsonDocument:
    return JsonDocument(json_schema.load_json_schema(source.text), json_schema.load_references(source.references))


def format_schema(source: SchemaSource, form: str) -> str:
    """The text in the form that a client asks for; as stored for an unknown form."""
    match source.type, form:
        case SchemaType.avro, "resolved":
            return avro_schema.resolve_avro(source.text, source.references)
        case SchemaType.protobuf, "serialized":
            return protobuf_schema.serialize_protobuf(source.text, source.references)
        case _:
            return source.text


def validate_references(references: Sequence[NamedSchema]) -> None:
    """Raises SchemaError if two of them have the same name."""
    names = [one.name for one in references]
    if len(set(names)) < len(names):
        raise SchemaError("two references have the same name")
