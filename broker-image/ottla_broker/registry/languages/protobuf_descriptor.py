"""Descriptors of Protobuf schemas, from `.proto` text, or from a descriptor in base64, which some
clients send.

proto-schema-parser reads the text. The protobuf library resolves names and decides what is valid.
"""

import base64
import binascii
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2, descriptor_pool, text_encoding
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.schema import NamedSchema

FieldProto = descriptor_pb2.FieldDescriptorProto
MAIN_FILE: Final = "default.proto"
SCALARS: Final = {
    name: getattr(FieldProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
LABELS: Final = {
    None: FieldProto.LABEL_OPTIONAL,
    ast.FieldCardinality.OPTIONAL: FieldProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: FieldProto.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: FieldProto.LABEL_REPEATED,
}
MAX_FIELD_NUMBER: Final = 536870911
MAX_ENUM_NUMBER: Final = 2147483647
PROTO3: Final = "proto3"


def load_descriptor(text: str, references: Sequence[NamedSchema] = (), name: str = MAIN_FILE) -> FileDescriptor:
    """The schema with all names resolved. Raises SchemaError."""
    pool = descriptor_pool.DescriptorPool()
    for reference in references:
        if reference.type != "PROTOBUF":
            raise SchemaError(f"reference {reference.name!r} is a schema of type {reference.type}")
        _add_file(pool, parse_descriptor(reference.text, reference.name))
    return _add_file(pool, parse_descriptor(text, name))


def _add_file(pool: Any, file: descriptor_pb2.FileDescriptorProto) -> FileDescriptor:
    """Adds a file to a descriptor pool, which resolves its names. Raises SchemaError."""
    for imported in file.dependency:
        _add_well_known(pool, imported)
    try:
        pool.Add(file)
        found: FileDescriptor = pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as reason:
        raise SchemaError(f"not a Protobuf schema: {_reason_text(reason)}") from None
    return found


def _reason_text(reason: Exception) -> str:
    text = str(reason.args[0]) if reason.args else str(reason)
    return text.removeprefix("Couldn't build proto file into descriptor pool: ").strip()


def _add_well_known(pool: Any, name: str) -> None:
    """Adds a file that every Protobuf library has, if the name is that of one and it is not added
    yet.
    """
    if not name.startswith("google/") or not name.endswith(".proto"):
        return
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return
    for imported in module.DESCRIPTOR.dependencies:
        _add_well_known(pool, imported.name)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def parse_descriptor(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of a schema, which gets the file name `name`. Names of types are as written.
    Raises SchemaError."""
    try:
        file = decode_serialized(text) or build_file(parse_text(text))
    except SchemaError:
        raise
    except (ValueError, TypeError) as reason:  # such as a number that is out of range
        raise SchemaError(f"not a Protobuf schema: {reason}") from None
    file.name = name
    return file


def decode_serialized(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """A descriptor in base64; None for text in Protobuf's language, which is never valid base64."""
    try:
        data = base64.b64decode(text, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None


def parse_text(text: str) -> ast.File:
    """The parsed text of a `.proto` file. Raises SchemaError."""
    try:
        return Parser(setup_lexer=_refuse_errors, setup_parser=_refuse_errors).parse(text)
    except (ValueError, AttributeError, TypeError, IndexError) as reason:  # the parser does not check all that it reads
        raise SchemaError(f"not a Protobuf schema: {reason}") from None


class _SyntaxErrors(ErrorListener):  # type: ignore[misc]
    """Raises SchemaError at an error, which the parser would otherwise print and skip."""

    def syntaxError(self, recognizer: Any, offending: Any, line: int, column: int, message: str, error: Any) -> None:
        raise SchemaError(f"not a Protobuf schema: line {line}, column {column + 1}: {message[:200]}")


def _refuse_errors(recognizer: Any) -> None:
    """Makes a lexer or parser raise SchemaError at the first error."""
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_SyntaxErrors())


# -- from the parser's tree to a descriptor


def build_file(tree: ast.File) -> descriptor_pb2.FileDescriptorProto:
    """Builds the descriptor of a parsed file. Names of types stay as written; the descriptor pool
    resolves them. Raises SchemaError.
    """
    file = descriptor_pb2.FileDescriptorProto()
    if tree.edition:
        file.syntax = "editions"
        try:
            file.edition = descriptor_pb2.Edition.Value(f"EDITION_{tree.edition}")
        except ValueError:
            raise SchemaError(f"unknown edition {tree.edition!r}") from None
    elif tree.syntax and tree.syntax != "proto2":
        file.syntax = tree.syntax
    builder = _Builder(is_proto3=file.syntax == PROTO3)
    for element in tree.file_elements:
        match element:
            case ast.Package():
                file.package = element.name
            case ast.Import():
                if element.public:
                    file.public_dependency.append(len(file.dependency))
                if element.weak:
                    file.weak_dependency.append(len(file.dependency))
                file.dependency.append(element.name)
            case ast.Option():
                set_option(file.options, element)
            case ast.Message():
                builder.fill_message(file.message_type.add(), element)
            case ast.Enum():
                builder.fill_enum(file.enum_type.add(), element)
            case ast.Extension():
                builder.add_extensions(file.extension, file.message_type, element)
            case ast.Service():
                builder.fill_service(file.service.add(), element)
    return file


class _Builder:
    """Fills descriptors from the nodes of the parser's tree."""

    def __init__(self, *, is_proto3: bool) -> None:
        self._is_proto3 = is_proto3

    def fill_message(self, message: Any, tree: ast.Message | ast.Group) -> None:
        message.name = tree.name
        for element in tree.elements:
            match element:
                case ast.Field():
                    self._add_field(message, element)
                case ast.MapField():
                    self._add_map(message, element)
                case ast.Group():
                    self._fill_group(message.field.add(), message.nested_type, element)
                case ast.OneOf():
                    self._add_one_of(message, element)
                case ast.Message():
                    self.fill_message(message.nested_type.add(), element)
                case ast.Enum():
                    self.fill_enum(message.enum_type.add(), element)
                case ast.Extension():
                    self.add_extensions(message.extension, message.nested_type, element)
                case ast.Option():
                    set_option(message.options, element)
                case ast.ExtensionRange():
                    for start, end in parse_ranges(element.ranges, MAX_FIELD_NUMBER):
                        message.extension_range.add(start=start, end=end + 1)
                case ast.Reserved():
                    message.reserved_name.extend(name.strip("\"'") for name in element.names)
                    for start, end in parse_ranges(element.ranges, MAX_FIELD_NUMBER):
                        message.reserved_range.add(start=start, end=end + 1)
        for field in message.field:  # oneofs of optional fields come after all others
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _add_field(self, message: Any, tree: ast.Field) -> None:
        field = message.field.add()
        self._fill_field(field, tree)
        field.proto3_optional = self._is_proto3 and tree.cardinality is ast.FieldCardinality.OPTIONAL
        if not field.proto3_optional:
            field.ClearField("proto3_optional")

    def _fill_field(self, field: Any, tree: ast.Field) -> None:
        field.name, field.number, field.label = tree.name, tree.number, LABELS[tree.cardinality]
        self._set_type(field, tree.type)
        for option in tree.options:
            set_field_option(field, option)

    def _set_type(self, field: Any, name: str) -> None:
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _add_map(self, message: Any, tree: ast.MapField) -> None:
        entry = message.nested_type.add()
        entry.name = "".join(part[:1].upper() + part[1:] for part in tree.name.split("_")) + "Entry"
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", tree.key_type), ("value", tree.value_type)), 1):
            one = entry.field.add(name=name, number=number, label=FieldProto.LABEL_OPTIONAL)
            self._set_type(one, kind)
        field = message.field.add(
            name=tree.name, number=tree.number, label=FieldProto.LABEL_REPEATED, type_name=entry.name
        )
        field.type = FieldProto.TYPE_MESSAGE
        for option in tree.options:
            set_field_option(field, option)

    def _fill_group(self, field: Any, nested: Any, tree: ast.Group) -> None:
        field.name, field.number, field.label = tree.name.lower(), tree.number, LABELS[tree.cardinality]
        field.type, field.type_name = FieldProto.TYPE_GROUP, tree.name
        self.fill_message(nested.add(), tree)

    def _add_one_of(self, message: Any, tree: ast.OneOf) -> None:
        index = len(message.oneof_decl)
        declared = message.oneof_decl.add(name=tree.name)
        for element in tree.elements:
            match element:
                case ast.Field():
                    field = message.field.add(oneof_index=index)
                    self._fill_field(field, element)
                case ast.Group():
                    field = message.field.add(oneof_index=index)
                    self._fill_group(field, message.nested_type, element)
                case ast.Option():
                    set_option(declared.options, element)

    def fill_enum(self, enum: Any, tree: ast.Enum) -> None:
        enum.name = tree.name
        for element in tree.elements:
            match element:
                case ast.EnumValue():
                    value = enum.value.add(name=element.name, number=element.number)
                    for option in element.options:
                        set_option(value.options, option)
                case ast.Option():
                    set_option(enum.options, element)
                case ast.EnumReserved():
                    enum.reserved_name.extend(name.strip("\"'") for name in element.names)
                    for start, end in parse_ranges(element.ranges, MAX_ENUM_NUMBER):
                        enum.reserved_range.add(start=start, end=end)

    def add_extensions(self, extensions: Any, nested: Any, tree: ast.Extension) -> None:
        for element in tree.elements:
            match element:
                case ast.Field():
                    field = extensions.add(extendee=tree.typeName)
                    self._fill_field(field, element)
                case ast.Group():
                    field = extensions.add(extendee=tree.typeName)
                    self._fill_group(field, nested, element)

    def fill_service(self, service: Any, tree: ast.Service) -> None:
        service.name = tree.name
        for element in tree.elements:
            match element:
                case ast.Method():
                    method = service.method.add(name=element.name)
                    method.input_type, method.output_type = element.input_type.type, element.output_type.type
                    if element.input_type.stream:
                        method.client_streaming = True
                    if element.output_type.stream:
                        method.server_streaming = True
                    for one in element.elements:
                        if isinstance(one, ast.Option):
                            set_option(method.options, one)
                case ast.Option():
                    set_option(service.options, element)


def parse_ranges(ranges: Iterable[str], maximum: int) -> Iterator[tuple[int, int]]:
    """The first and the last number of each range, such as `4`, `5 to 7` or `8 to max`."""
    for text in ranges:
        start, _, end = (part.strip() for part in text.partition(" to "))
        first = parse_integer(start)
        yield first, maximum if end == "max" else parse_integer(end) if end else first


def parse_integer(text: str) -> int:
    """A decimal number, a hexadecimal (`0x1f`) or an octal one (`017`). Raises ValueError."""
    return int(text, 8 if text.lstrip("-").isdecimal() and text.lstrip("-").startswith("0") else 0)


def option_value(option: ast.Option) -> Any:
    """The value of an option. The parser leaves escape sequences in strings; they are resolved
    here. Raises SchemaError.
    """
    if isinstance(option.value, ast.Identifier):
        return option.value.name
    if not isinstance(option.value, str):
        return option.value
    try:
        return text_encoding.CUnescape(option.value).decode()
    except ValueError:
        raise SchemaError(f"option {option.name} is not a string: {option.value!r}") from None


def set_option(options: Any, option: ast.Option) -> None:
    """Sets an option that Protobuf defines. A custom option, and one whose value is a message,
    remain in the schema's text only. Raises SchemaError for a value that the option cannot have.
    """
    field = options.DESCRIPTOR.fields_by_name.get(option.name)
    if field is None or isinstance(option.value, ast.MessageLiteral) or field.message_type is not None:
        return
    value = option_value(option)
    try:
        if field.enum_type is not None:
            value = field.enum_type.values_by_name[str(value)].number
        elif isinstance(getattr(options, field.name), bool):
            value = value if isinstance(value, bool) else str(value) == "true"
        setattr(options, field.name, value)
    except (KeyError, TypeError, ValueError):
        raise SchemaError(f"option {option.name} cannot be {value!r}") from None


def set_field_option(field: Any, option: ast.Option) -> None:
    """Sets an option of a field; `default` and `json_name` are fields of its descriptor. Raises
    SchemaError.
    """
    value = option_value(option)
    if option.name == "default":
        if field.type == FieldProto.TYPE_BYTES:
            value = option.value  # descriptors have it escaped
        field.default_value = str(value).lower() if isinstance(value, bool) else str(value)
    elif option.name == "json_name":
        field.json_name = str(value)
    else:
        set_option(field.options, option)
