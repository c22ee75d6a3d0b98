"""Messages of Protobuf schemas: descriptors from a set of files, and the message indexes of framed
records. The first index is the number of a message in its file, each further one that of a message
nested in the one before.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ottla_spark.record_schema import UnusableSchema


def parse_file_descriptor(text: str) -> FileDescriptor:
    """The last file of a FileDescriptorSet in base64. Raises UnusableSchema."""
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file
    except (binascii.Error, ValueError, DecodeError):
        raise UnusableSchema("not a FileDescriptorSet in base64, as protoc --descriptor_set_out writes it") from None
    if not files:
        raise UnusableSchema("the FileDescriptorSet has no file")
    pool = DescriptorPool()
    given = {file.name for file in files}
    try:
        for file in files:
            for imported in file.dependency:
                if imported not in given:
                    _add_well_known(pool, imported)
            pool.Add(file)
        return pool.FindFileByName(files[-1].name)
    except (TypeError, KeyError, ValueError) as error:
        raise UnusableSchema(f"not a Protobuf schema: {error.args[0] if error.args else error}") from None


def _add_well_known(pool: Any, name: str) -> None:
    """Adds a file that the Protobuf library itself has, google/protobuf/timestamp.proto for
    example, and the files that it imports. Other names are ignored.
    """
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return  # the pool names the missing import
    for imported in module.DESCRIPTOR.dependencies:
        _add_well_known(pool, imported.name)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def find_message(file: FileDescriptor, name: str) -> Descriptor:
    """A message by its name, with or without the package; the first if the name is empty. Raises
    UnusableSchema.
    """
    messages = file.message_types_by_name
    if not messages:
        raise UnusableSchema("the schema has no message")
    if not name:
        return next(iter(messages.values()))
    path = name.removeprefix(f"{file.package}.").split(".") if file.package else name.split(".")
    found = messages.get(path[0])
    for nested in path[1:]:
        found = found.nested_types_by_name.get(nested) if found is not None else None
    if found is None:
        raise UnusableSchema(f"the schema has no message {name}; it has {', '.join(messages)}")
    return found


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor | None:
    """The message at these message indexes. None if the file lacks it."""
    messages = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        found = messages[index]
        messages = list(found.nested_types)
    return found


def message_indexes(message: Descriptor) -> list[int]:
    parent = message.containing_type
    siblings = message.file.message_types_by_name.values() if parent is None else parent.nested_types
    above = [] if parent is None else message_indexes(parent)
    return [*above, [it.full_name for it in siblings].index(message.full_name)]


def read_message_indexes(value: bytes | bytearray, at: int) -> tuple[tuple[int, ...], int]:
    """The message indexes that begin at a position of a framed record, and the position after them.
    A record has the number of indexes, then the indexes, as zigzag varints; 0 alone stands for [0].
    Raises IndexError if the record ends within them.
    """
    count, at = _read_varint(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(value) - at:
        raise IndexError("the message indexes are longer than the value")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(value, at)
        indexes.append(index)
    return tuple(indexes), at


def encode_message_indexes(indexes: Sequence[int]) -> bytes:
    return b"\0" if list(indexes) == [0] else b"".join(map(_varint, (len(indexes), *indexes)))


def _read_varint(value: bytes | bytearray, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _varint(number: int) -> bytes:
    number <<= 1  # zigzag, of numbers that are not negative
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
