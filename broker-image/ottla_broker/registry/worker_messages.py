"""Messages between a broker and its schema worker: msgpack, each preceded by its length in 4 bytes.

The broker imports these types without the worker, whose libraries take 11 MiB of memory.
"""

import struct
from typing import Final

import msgspec

from ottla_broker.registry.languages.incompatibility import Incompatibility
from ottla_broker.registry.schema import SchemaSource

LENGTH: Final = struct.Struct(">I")


class PrintRequest(msgspec.Struct, tag="print"):
    """Asks to validate a schema, and for the text that the registry stores."""

    source: SchemaSource
    normalize: bool


class CompareRequest(msgspec.Struct, tag="compare"):
    """Asks why `reader` cannot read what `writer` has written."""

    reader: SchemaSource
    writer: SchemaSource


class FormatRequest(msgspec.Struct, tag="format"):
    """Asks for a schema's text in the form that a client's parameter `format` names."""

    source: SchemaSource
    form: str


class EncodeRequest(msgspec.Struct, tag="encode"):
    """Asks for the bytes of a value. `text`: the value as JSON. `message`: the name of a message of
    a Protobuf schema; empty for the first.
    """

    source: SchemaSource
    text: str
    message: str


WorkerRequest = PrintRequest | CompareRequest | FormatRequest | EncodeRequest


class WorkerResponse(msgspec.Struct):
    """`text`: of a printed or formatted schema. `data`: an encoded value. `error`: why a schema is
    invalid. `mismatch`: why a value cannot be encoded by its schema.
    """

    text: str = ""
    data: bytes = b""
    mismatch: str = ""
    incompatibilities: list[Incompatibility] = []
    error: str = ""
