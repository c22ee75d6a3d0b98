"""Encodes values that are given as JSON, as serialisers of the schema's language do. The result
follows the zero byte and the schema's id in a key or value.
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import jsonschema_rs
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import EncodeError

from ottla_broker.registry.languages.avro_schema import load_json, resolve_avro
from ottla_broker.registry.languages.avro_values import write_avro
from ottla_broker.registry.languages.incompatibility import SchemaError
from ottla_broker.registry.languages.json_schema import JsonDocument, load_json_schema, load_references, with_draft
from ottla_broker.registry.languages.protobuf_descriptor import load_descriptor
from ottla_broker.registry.languages.value_mismatch import ValueMismatch
from ottla_broker.registry.schema import SchemaSource, SchemaType

_FIELD: Final = re.compile(r"Failed to parse (\S+) field: ")
_IN_FIELD: Final = re.compile(f"(?:{_FIELD.pattern})*")
"""What json_format puts before a reason, once for each level of nesting."""


def encode_value(source: SchemaSource, text: str, message: str = "") -> bytes:
    """`text`: JSON. `message`: name of a Protobuf message, `Outer.Inner` for a nested one; empty:
    the first of the file. Raises SchemaError, ValueMismatch.
    """
    match source.type:
        case SchemaType.avro:
            return write_avro(load_json(resolve_avro(source.text, source.references)), parse_json(text))
        case SchemaType.protobuf:
            return write_protobuf(load_descriptor(source.text, source.references), text, message)
        case SchemaType.json:
            return write_json(source, text)
    raise SchemaError(f"unknown schema type {source.type}")


def parse_json(text: str) -> Any:
    """Parses JSON; numbers with a fraction become Decimals, which keep every digit. Raises
    ValueMismatch.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=refuse_constant)
    except ValueError as reason:
        raise ValueMismatch.at("", f"JSON ({reason})") from None


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def write_json(source: SchemaSource, text: str) -> bytes:
    """The text itself, if the schema allows its value. Raises SchemaError, ValueMismatch."""
    parse_json(text)
    schema = load_json_schema(source.text)
    document = JsonDocument(schema, load_references(source.references))
    checked = with_draft(schema) if isinstance(schema, dict) else schema
    try:
        validator = jsonschema_rs.validator_for(
            checked, registry=document.registry(), base_uri=document.address, offline=True
        )
        validator.validate(json.loads(text))
    except jsonschema_rs.ValidationError as reason:
        path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in reason.instance_path)
        raise ValueMismatch.at(path.removeprefix("."), f"what the schema allows: {reason.message[:300]}") from None
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as reason:
        raise SchemaError(f"not a JSON Schema: {reason}") from None
    return text.strip().encode()


def write_protobuf(file: FileDescriptor, text: str, name: str) -> bytes:
    """The message indexes and the encoded message. `name`: as in `encode_value`. Raises
    ValueMismatch.
    """
    path, descriptor = find_message(file, name)
    message = message_factory.GetMessageClass(descriptor)()
    try:
        json_format.Parse(text, message, descriptor_pool=file.pool)
        return write_message_indexes(path) + bytes(message.SerializeToString())
    except (json_format.ParseError, EncodeError, TypeError, ValueError) as reason:
        fields = _IN_FIELD.match(str(reason))
        assert fields is not None
        where = ".".join(_FIELD.findall(fields.group()))
        why = str(reason)[fields.end() :].strip().rstrip(".")
        raise ValueMismatch.at(where, f"what a message {descriptor.full_name} can hold ({why})") from None


def find_message(file: FileDescriptor, name: str) -> tuple[list[int], Descriptor]:
    """The message indexes and the descriptor of the message with that name; of the file's first
    message for an empty name. Raises ValueMismatch.
    """
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    path: list[int] = []
    found: Descriptor | None = None
    for part in name.removeprefix(f"{file.package}.").split(".") if name else [messages[0].name if messages else ""]:
        names = [one.name for one in messages]
        if part not in names:
            raise ValueMismatch.at("", f"the name of a message, one of {', '.join(names) or 'none'}", part)
        path.append(names.index(part))
        found = messages[path[-1]]
        messages = list(found.nested_types)
    assert found is not None
    return path, found


def write_message_indexes(path: Sequence[int]) -> bytes:
    """The number of indexes, and an index for each level of nesting. One zero byte stands for the
    first message.
    """
    if list(path) == [0]:
        return b"\0"
    return b"".join(map(_write_zigzag, (len(path), *path)))


def _write_zigzag(number: int) -> bytes:
    """Encodes a number that is not negative. `wire.records.encode_varint` would load Kafka's
    messages, 12 MB, into this process.
    """
    left, written = number << 1, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*written, left))
