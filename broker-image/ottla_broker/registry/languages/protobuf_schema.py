"""Protobuf schemas: the text that is stored, and the serialized form.

A text is stored as written, without white space at the ends of lines. A serialized descriptor,
and a schema that a client asks to normalize, is printed from its descriptor.
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2

from ottla_broker.registry.languages.protobuf_descriptor import (
    MAX_ENUM_NUMBER,
    MAX_FIELD_NUMBER,
    PROTO3,
    SCALARS,
    decode_serialized,
    load_descriptor,
)
from ottla_broker.registry.schema import NamedSchema

FieldProto = descriptor_pb2.FieldDescriptorProto
SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
LABEL_NAMES: Final = {
    FieldProto.LABEL_OPTIONAL: "optional ",
    FieldProto.LABEL_REQUIRED: "required ",
    FieldProto.LABEL_REPEATED: "repeated ",
}
INDENT: Final = "  "

Lines = Iterator[str]


def print_protobuf(text: str, references: Sequence[NamedSchema] = (), *, normalize: bool = False) -> str:
    """The text that the registry stores, of a valid schema. Raises SchemaError."""
    descriptor = load_descriptor(text, references)
    if not normalize and decode_serialized(text) is None:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    return "\n".join(file_lines(file, normalize=normalize))


def serialize_protobuf(text: str, references: Sequence[NamedSchema] = ()) -> str:
    """The descriptor in base64 (`format=serialized`). Raises SchemaError."""
    return base64.b64encode(load_descriptor(text, references).serialized_pb).decode()


def file_lines(file: descriptor_pb2.FileDescriptorProto, *, normalize: bool) -> Lines:
    """The lines of a .proto file with the descriptor's contents. `normalize`: sorts imports by
    name, fields and values by number.
    """
    if file.syntax == "editions":
        yield f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";'
    else:
        yield f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    imports = [(name, at) for at, name in enumerate(file.dependency)]
    for name, at in sorted(imports) if normalize else imports:
        kind = "public " if at in file.public_dependency else "weak " if at in file.weak_dependency else ""
        yield f'import {kind}"{name}";'
    yield from option_lines(file.options)
    printer = _Printer(is_proto3=file.syntax == PROTO3, normalize=normalize)
    for message in file.message_type:
        yield from printer.message_lines(message)
    for enum in file.enum_type:
        yield from printer.enum_lines(enum)
    yield from printer.extension_lines(file.extension)
    for service in file.service:
        yield from service_lines(service)


class _Printer:
    def __init__(self, *, is_proto3: bool, normalize: bool) -> None:
        self._is_proto3 = is_proto3
        self._normalize = normalize

    def message_lines(self, message: Any) -> Lines:
        yield f"message {message.name} {{"
        yield from indented(self._element_lines(message))
        yield "}"

    def _element_lines(self, message: Any) -> Lines:
        nested = {one.name: one for one in message.nested_type}
        of_fields = {name for name, one in nested.items() if one.options.map_entry}
        yield from option_lines(message.options)
        yield from reserved_lines(message.reserved_range, message.reserved_name, MAX_FIELD_NUMBER, past_end=1)
        for start, end in ((one.start, one.end - 1) for one in message.extension_range):
            yield f"extensions {range_text(start, end, MAX_FIELD_NUMBER)};"
        printed: set[int] = set()
        for field in self._sorted(message.field):
            if field.type == FieldProto.TYPE_GROUP:
                of_fields.add(short_name(field))
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field_lines(field, nested)
            elif field.oneof_index not in printed:
                printed.add(field.oneof_index)
                one_of = message.oneof_decl[field.oneof_index]
                yield f"oneof {one_of.name} {{"
                yield from indented(option_lines(one_of.options))
                for other in self._sorted(message.field):
                    if other.HasField("oneof_index") and other.oneof_index == field.oneof_index:
                        yield from indented(self._field_lines(other, nested))
                yield "}"
        yield from self.extension_lines(message.extension)
        for name, one in nested.items():
            if name not in of_fields:
                yield from self.message_lines(one)
        for enum in message.enum_type:
            yield from self.enum_lines(enum)

    def _sorted(self, numbered: Any) -> Any:
        return sorted(numbered, key=lambda it: it.number) if self._normalize else numbered

    def _field_lines(self, field: Any, nested: dict[str, Any]) -> Lines:
        options = options_text(field_options(field))
        kind = nested.get(short_name(field)) if field.type_name else None
        if field.type == FieldProto.TYPE_GROUP and kind is not None:
            yield f"{self._label(field)}group {kind.name} = {field.number}{options} {{"
            yield from indented(self._element_lines(kind))
            yield "}"
        elif kind is not None and kind.options.map_entry:
            key, value = kind.field
            yield f"map<{type_text(key)}, {type_text(value)}> {field.name} = {field.number}{options};"
        else:
            yield f"{self._label(field)}{type_text(field)} {field.name} = {field.number}{options};"

    def _label(self, field: Any) -> str:
        is_implied = (field.HasField("oneof_index") or self._is_proto3) and not field.proto3_optional
        return "" if is_implied and field.label == FieldProto.LABEL_OPTIONAL else LABEL_NAMES[field.label]

    def enum_lines(self, enum: Any) -> Lines:
        yield f"enum {enum.name} {{"
        yield from indented(option_lines(enum.options))
        reserved = reserved_lines(enum.reserved_range, enum.reserved_name, MAX_ENUM_NUMBER, past_end=0)
        yield from indented(reserved)
        for value in self._sorted(enum.value):
            yield f"{INDENT}{value.name} = {value.number}{options_text(list(options_of(value.options)))};"
        yield "}"

    def extension_lines(self, fields: Any) -> Lines:
        for field in fields:
            yield f"extend {field.extendee} {{"
            yield from indented(self._field_lines(field, {}))
            yield "}"


def indented(lines: Lines) -> Lines:
    return (f"{INDENT}{line}" for line in lines)


def short_name(field: Any) -> str:
    return str(field.type_name.rpartition(".")[2])


def type_text(field: Any) -> str:
    return SCALAR_NAMES.get(field.type) or str(field.type_name)


def options_of(options: Any) -> Iterator[tuple[str, str]]:
    """Names and values of the language's own options."""
    for field, value in options.ListFields():
        if field.name == "map_entry" or field.message_type is not None or field.is_extension:
            continue
        for one in [value] if isinstance(value, (str, bytes, int, float)) else value:
            yield field.name, value_text(field, one)


def value_text(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    return quoted(value) if isinstance(value, str) else str(value).lower()


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def field_options(field: Any) -> list[tuple[str, str]]:
    found = list(options_of(field.options))
    if field.HasField("default_value"):
        found.insert(0, ("default", default_text(field)))
    if field.HasField("json_name") and field.json_name != json_name(field.name):
        found.append(("json_name", quoted(field.json_name)))
    return found


def default_text(field: Any) -> str:
    if field.type == FieldProto.TYPE_BYTES:
        return f'"{field.default_value}"'  # descriptors have it escaped
    return quoted(field.default_value) if field.type == FieldProto.TYPE_STRING else str(field.default_value)


def json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def options_text(options: list[tuple[str, str]]) -> str:
    return f" [{', '.join(f'{name} = {value}' for name, value in options)}]" if options else ""


def option_lines(options: Any) -> Lines:
    return (f"option {name} = {value};" for name, value in options_of(options))


def reserved_lines(ranges: Any, names: Any, maximum: int, *, past_end: int) -> Lines:
    if ranges:
        yield f"reserved {', '.join(range_text(one.start, one.end - past_end, maximum) for one in ranges)};"
    if names:
        yield f"reserved {', '.join(map(quoted, names))};"


def range_text(start: int, end: int, maximum: int) -> str:
    last = "max" if end == maximum else str(end)
    return str(start) if start == end else f"{start} to {last}"


def service_lines(service: Any) -> Lines:
    yield f"service {service.name} {{"
    yield from indented(option_lines(service.options))
    for one in service.method:
        given = f"{'stream ' if one.client_streaming else ''}{one.input_type}"
        returned = f"{'stream ' if one.server_streaming else ''}{one.output_type}"
        yield f"{INDENT}rpc {one.name} ({given}) returns ({returned}) {{"
        yield from indented(indented(option_lines(one.options)))
        yield f"{INDENT}}}"
    yield "}"
