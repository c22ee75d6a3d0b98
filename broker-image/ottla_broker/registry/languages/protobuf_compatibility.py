"""Compatibility of Protobuf schemas: a reader's schema must read what a writer's has written.

The rules are those of Confluent's registry: fields with the same number must have types that read
each other's values. Fields that are not required may be added, removed and renamed. No field may be
removed from a oneof that remains or moved into an existing oneof, and at most one field may be
moved into a new oneof. Messages may be added but not removed, and the package must stay.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

from ottla_broker.registry.languages.incompatibility import Incompatibility

FieldProto = descriptor_pb2.FieldDescriptorProto
MAX_REPORTED: Final = 100

_KINDS: Final = (
    ("int32", "int64", "uint32", "uint64", "bool", "enum"),
    ("sint32", "sint64"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("string", "bytes"),
    ("float",),
    ("double",),
)
WIRE_GROUPS: Final = {
    getattr(FieldProto, f"TYPE_{name.upper()}"): at for at, names in enumerate(_KINDS) for name in names
}
"""Scalar types that read each other's values have the same group."""
LENGTH_DELIMITED: Final = frozenset({FieldProto.TYPE_STRING, FieldProto.TYPE_BYTES, FieldProto.TYPE_MESSAGE})
TYPE_NAMES: Final = {value.number: value.name[5:].lower() for value in FieldProto.Type.DESCRIPTOR.values}


def find_protobuf_incompatibilities(reader: FileDescriptor, writer: FileDescriptor) -> list[Incompatibility]:
    """The reasons why the reader cannot read the writer's data; empty when it can."""
    comparison = _Comparison(reader.package, writer.package)
    if reader.package != writer.package:
        comparison.report(
            "PACKAGE_CHANGED",
            f"The package of the new schema is '{reader.package}' and that of the old one '{writer.package}'",
            "",
            reader.package,
        )
    messages = dict(reader.message_types_by_name)
    for name, message in writer.message_types_by_name.items():
        comparison.compare_message(messages.get(name), message, f"#/{name}")
    return comparison.found


class _Comparison:
    """Compares messages and collects the incompatibilities in `found`. `path`: a JSON pointer to
    the compared part, for the descriptions.
    """

    def __init__(self, reader_package: str, writer_package: str) -> None:
        self.found: list[Incompatibility] = []
        self._compared: set[tuple[str, str]] = set()
        self._reader_package = reader_package
        self._writer_package = writer_package

    def report(self, kind: str, description: str, path: str, subject: str) -> None:
        if len(self.found) < MAX_REPORTED:
            self.found.append(Incompatibility(kind, f"{description} at path '{path or '#/'}'", path, subject))

    def compare_message(self, reader: Any, writer: Any, path: str) -> None:
        """`reader`: the message with the name of the writer's; None if the reader has none."""
        if reader is None:
            self.report("MESSAGE_REMOVED", f"The new schema has no message '{writer.full_name}'", path, writer.name)
        else:
            self._compare(reader, writer, path)

    def _compare(self, reader: Any, writer: Any, path: str) -> None:
        pair = reader.full_name, writer.full_name
        if pair in self._compared:
            return
        self._compared.add(pair)
        for name, nested in writer.nested_types_by_name.items():
            if not nested.GetOptions().map_entry:
                self.compare_message(reader.nested_types_by_name.get(name), nested, f"{path}/{name}")
        written = writer.fields_by_number
        for number, field in reader.fields_by_number.items():
            if number in written:
                self._compare_field(field, written[number], f"{path}/{number}")
            elif field.is_required:
                self.report(
                    "REQUIRED_FIELD_ADDED",
                    f"The required field '{field.name}' in the new schema is missing in the old schema",
                    f"{path}/{number}",
                    field.name,
                )
        for number, field in written.items():
            if field.is_required and number not in reader.fields_by_number:
                self.report(
                    "REQUIRED_FIELD_REMOVED",
                    f"The required field '{field.name}' of the old schema is missing in the new schema",
                    f"{path}/{number}",
                    field.name,
                )
        self._compare_one_ofs(reader, writer, path)

    def _compare_field(self, reader: Any, writer: Any, path: str) -> None:
        if reader.type == writer.type == FieldProto.TYPE_MESSAGE:
            if _is_map(reader) or _is_map(writer):
                self._compare_maps(reader, writer, path)
            elif self._name_in_package(reader.message_type) != self._name_in_package(writer.message_type):
                self.report(
                    "FIELD_NAMED_TYPE_CHANGED",
                    f"The type of field '{reader.name}' is '{reader.message_type.full_name}' in the new schema and "
                    f"'{writer.message_type.full_name}' in the old schema",
                    path,
                    reader.name,
                )
            else:
                self._compare(reader.message_type, writer.message_type, path)
            return
        groups = WIRE_GROUPS.get(reader.type), WIRE_GROUPS.get(writer.type)
        if groups[0] is None or groups[0] != groups[1]:
            is_scalar = None not in groups
            self.report(
                "FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED",
                f"The type of field '{reader.name}' is '{TYPE_NAMES[reader.type]}' in the new schema and "
                f"'{TYPE_NAMES[writer.type]}' in the old schema",
                path,
                reader.name,
            )
        elif reader.is_repeated != writer.is_repeated and reader.type not in LENGTH_DELIMITED:
            self.report(
                "FIELD_NUMERIC_LABEL_CHANGED",
                f"The numeric field '{reader.name}' is repeated in only one of the schemas",
                path,
                reader.name,
            )

    def _compare_maps(self, reader: Any, writer: Any, path: str) -> None:
        if not (_is_map(reader) and _is_map(writer)):
            self.report(
                "FIELD_KIND_CHANGED",
                f"The field '{reader.name}' is a map in only one of the schemas",
                path,
                reader.name,
            )
            return
        for name in ("key", "value"):
            self._compare_field(
                reader.message_type.fields_by_name[name], writer.message_type.fields_by_name[name], f"{path}/{name}"
            )

    def _name_in_package(self, message: Any) -> str:
        """The message's name without the package of either schema."""
        for package in (self._reader_package, self._writer_package):
            if package and message.full_name.startswith(f"{package}."):
                return str(message.full_name.removeprefix(f"{package}."))
        return str(message.full_name)

    def _compare_one_ofs(self, reader: Any, writer: Any, path: str) -> None:
        for one_of in writer.oneofs:
            if _is_synthetic(one_of):
                continue
            for field in one_of.fields:
                if field.number not in reader.fields_by_number and one_of.name in reader.oneofs_by_name:
                    self.report(
                        "ONEOF_FIELD_REMOVED",
                        f"The field '{field.name}' of oneof '{one_of.name}' is missing in the new schema",
                        f"{path}/{one_of.name}/{field.number}",
                        field.name,
                    )
        for one_of in reader.oneofs:
            if _is_synthetic(one_of):
                continue
            moved = [field for field in one_of.fields if _is_outside(writer.fields_by_number.get(field.number))]
            is_existing = one_of.name in writer.oneofs_by_name
            if (is_existing and moved) or len(moved) > 1:
                self.report(
                    "FIELD_MOVED_TO_EXISTING_ONEOF" if is_existing else "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
                    f"Fields {[field.name for field in moved]} of the old schema are in oneof '{one_of.name}' of "
                    "the new schema",
                    f"{path}/{one_of.name}",
                    one_of.name,
                )


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _is_synthetic(one_of: Any) -> bool:
    """True for the oneof that Protobuf makes of an optional field of proto3."""
    return len(one_of.fields) == 1 and one_of.name == f"_{one_of.fields[0].name}"


def _is_outside(field: Any) -> bool:
    """True for a field of the writer that is in no oneof."""
    return field is not None and (field.containing_oneof is None or _is_synthetic(field.containing_oneof))
