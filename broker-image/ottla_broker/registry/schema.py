"""A schema as clients register it: its type, text, references, metadata and rule set."""

import hashlib
import uuid
from collections.abc import Iterator
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
    """`text`: as the client sent it, as `SchemaRegistry.parse_schema` has printed it, or as another
    registry has written it to the topic.

    `metadata` and `rule_set` are stored and returned as JSON; the registry does not run rules."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None

    @property
    def is_plain_avro(self) -> bool:
        return self.type == SchemaType.avro and not (self.references or self.metadata or self.rule_set)

    def fingerprint(self) -> bytes:
        """16 bytes, which are equal for equal schemas. Only this broker uses them."""
        if self.is_plain_avro:
            return hashlib.md5(self.text.encode(), usedforsecurity=False).digest()
        parts = [self.type, self.text, self.references, self.metadata or None, self.rule_set or None]
        return hashlib.md5(msgspec.json.encode(parts, order="deterministic"), usedforsecurity=False).digest()

    def md5(self) -> bytes:
        """The hash by which Confluent's registry finds equal schemas; it is their GUID. It does not
        cover the type.
        """
        digest = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for reference in self.references:
            digest.update(f"{reference.name}{reference.subject}".encode())
            digest.update((reference.version & 0xFFFFFFFF).to_bytes(4))
        if self.metadata:
            digest.update(b"\x01" + "".join(_metadata_texts(self.metadata)).encode())
        if self.rule_set:
            digest.update(b"\x01" + "".join(_rule_set_texts(self.rule_set)).encode())
        return digest.digest()

    def guid(self) -> str:
        return str(uuid.UUID(bytes=self.md5()))


def _metadata_texts(metadata: JsonObject) -> Iterator[str]:
    for name, values in _sorted_items(metadata.get("tags")):
        yield name
        yield from _sorted_texts(values)
    yield from _property_texts(metadata.get("properties"))
    yield from _sorted_texts(metadata.get("sensitive"))


def _rule_set_texts(rule_set: JsonObject) -> Iterator[str]:
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        rules = rule_set.get(kind)
        for rule in rules if isinstance(rules, list) else ():
            if isinstance(rule, dict):
                yield from _rule_texts(rule)
    yield str(rule_set.get("enableAt") or "")


def _rule_texts(rule: JsonObject) -> Iterator[str]:
    defaults = {"kind": "TRANSFORM", "mode": "WRITEREAD"}
    yield from (str(rule.get(name) or defaults.get(name, "")) for name in ("name", "doc", "kind", "mode", "type"))
    yield from _sorted_texts(rule.get("tags"))
    yield from _property_texts(rule.get("params"))
    yield from (str(rule.get(name) or "") for name in ("expr", "onSuccess", "onFailure"))
    if rule.get("disabled"):
        yield "\x01"


def _property_texts(properties: object) -> Iterator[str]:
    return (f"{name}{value}" for name, value in _sorted_items(properties))


def _sorted_items(value: object) -> list[tuple[str, Any]]:
    return sorted(value.items(), key=lambda it: it[0]) if isinstance(value, dict) else []


def _sorted_texts(value: object) -> list[str]:
    return sorted(map(str, value)) if isinstance(value, list) else []


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
