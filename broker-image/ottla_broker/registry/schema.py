"""A schema as clients register it: its type, text, references, metadata and rule set."""

import hashlib
import uuid
from enum import StrEnum
from typing import Any, Final

import msgspec

JsonObject = dict[str, Any]


class SchemaType(StrEnum):
    avro = "AVRO"
    json = "JSON"
    protobuf = "PROTOBUF"


SCHEMA_TYPES: Final = tuple(SchemaType)


class Reference(msgspec.Struct, frozen=True):
    """`name`: the name by which the schema refers to the other one (an Avro type, a `$ref`, an
    import)."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, eq=False):
    """`text` is in the form that its language prints it, unless a client asks to normalize it.

    `metadata` and `rule_set` are stored and returned as JSON; the registry does not run rules."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None

    def fingerprint(self) -> bytes:
        """16 bytes, equal for equal schemas."""
        if self.type == SchemaType.avro and not (self.references or self.metadata or self.rule_set):
            return hashlib.md5(self.text.encode(), usedforsecurity=False).digest()
        parts = [self.type, self.text, self.references, self.metadata or None, self.rule_set or None]
        return hashlib.md5(msgspec.json.encode(parts, order="deterministic"), usedforsecurity=False).digest()

    def guid(self) -> str:
        return str(uuid.UUID(bytes=self.fingerprint()))


class NamedSchema(msgspec.Struct, frozen=True):
    """A schema that another one refers to by `name`, and its text."""

    name: str
    type: str
    text: str


class SchemaSource(msgspec.Struct, frozen=True):
    """A schema with the schemas that it refers to, each after those that it refers to itself."""

    type: str
    text: str
    references: tuple[NamedSchema, ...] = ()


LATEST: Final = -1
"""The number that stands for "latest" in references and requests."""
