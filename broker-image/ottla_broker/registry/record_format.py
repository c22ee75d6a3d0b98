"""Records of the topic `_schemas`, in Confluent's format: JSON keys and values.

Another registry can use this topic, and this registry can use the topic of another one. When a
record is written again, unknown fields of its value are dropped, except for a config. Records of
unknown types are ignored.
"""

import base64
import uuid
from typing import Any, Final

import msgspec

from ottla_broker.registry.schema import JsonObject, Reference, Schema, SchemaType

SCHEMA_MAGIC: Final = 1
"""The value of `magic` in keys of schemas; in all other keys it is OTHER_MAGIC."""
OTHER_MAGIC: Final = 0
DELETIONS: Final = (None, b"", b"null", b'""')
"""Values of a deleted key: Kafka's tombstone, and what Karapace writes and reads as one."""
DEFAULT_TENANT: Final = "default"
"""Confluent's registry writes it into records of contexts."""
USUAL_KEY: Final = b'{"keytype":"SCHEMA","subject":'
"""How nearly every key begins."""


class RecordKey(msgspec.Struct):
    keytype: str
    subject: str | None = None
    version: int | None = None
    magic: int = 0
    tenant: str | None = None
    context: str | None = None


class SchemaValue(msgspec.Struct, rename={"schema_type": "schemaType", "rule_set": "ruleSet"}):
    """A version of a subject. `guid`: present in records of this registry whose text it has printed
    itself. `md5`: the GUID in base64, in some records of Confluent's registry. `deleted`: the
    version is soft-deleted.
    """

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = SchemaType.avro
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None
    guid: str | None = None
    md5: str | None = None
    deleted: bool = False

    def find_guid(self) -> str | None:
        """The GUID in `guid` or `md5`; None without a valid one."""
        if self.guid is None and self.md5 is not None:
            try:
                return str(uuid.UUID(bytes=base64.b64decode(self.md5, validate=True)))
            except ValueError:
                return None
        return self.guid


def schema_value(
    subject: str, version: int, id_: int, schema: Schema, *, is_printed: bool = True, deleted: bool = False
) -> SchemaValue:
    """`is_printed`: False if another registry has written the text."""
    return SchemaValue(
        subject,
        version,
        id_,
        schema.text,
        schema.type,
        schema.references,
        schema.metadata,
        schema.rule_set,
        schema.guid() if is_printed else None,
        deleted=deleted,
    )


class ConfigValue(msgspec.Struct, omit_defaults=True):
    """Settings of a subject, a context, or the whole registry (without a subject).

    `fields`: as in the REST interface; the level is `compatibilityLevel`."""

    fields: JsonObject


class ModeValue(msgspec.Struct):
    """The mode of a subject, a context, or the whole registry (without a subject)."""

    mode: str


class DeleteSubjectValue(msgspec.Struct):
    """Versions up to `version` are soft-deleted."""

    subject: str
    version: int


class ContextValue(msgspec.Struct):
    """A context other than the default one exists."""

    context: str
    tenant: str = DEFAULT_TENANT


Value = SchemaValue | ConfigValue | ModeValue | DeleteSubjectValue | ContextValue | None

_decode_key: Final = msgspec.json.Decoder(RecordKey).decode
_decode_schema: Final = msgspec.json.Decoder(SchemaValue).decode
_decode_mode: Final = msgspec.json.Decoder(ModeValue).decode
_decode_deletion: Final = msgspec.json.Decoder(DeleteSubjectValue).decode
_decode_context: Final = msgspec.json.Decoder(ContextValue).decode
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


class SchemasRecord(msgspec.Struct):
    """`value`: None if the key is deleted. `foreign_key`: the key as another registry has written
    it, if this one writes it differently.
    """

    key: RecordKey
    value: Value
    foreign_key: bytes | None = None


def decode_record(key: bytes, value: bytes | None) -> SchemasRecord | None:
    """None for a record of a type that this registry ignores, such as NOOP. Raises ValueError."""
    found = _decode(key, None if value in DELETIONS else value)
    if found is not None and not key.startswith(USUAL_KEY) and encode_key(found.key) != key:
        found.foreign_key = bytes(key)
    return found


def _decode(key: bytes, value: bytes | None) -> SchemasRecord | None:
    try:
        decoded = _decode_key(key)
        match decoded.keytype:
            case "SCHEMA":
                return SchemasRecord(decoded, None if value is None else _decode_schema(value))
            case "CONFIG":
                return SchemasRecord(decoded, None if value is None else _config_value(_decode_object(value)))
            case "MODE":
                return SchemasRecord(decoded, None if value is None else _decode_mode(value))
            case "DELETE_SUBJECT":
                return SchemasRecord(decoded, None if value is None else _decode_deletion(value))
            case "CONTEXT":
                return SchemasRecord(decoded, None if value is None else _decode_context(value))
            case "CLEAR_SUBJECT":
                return SchemasRecord(decoded, None)
    except msgspec.MsgspecError as reason:
        raise ValueError(f"a record of _schemas cannot be read: {reason}") from reason
    return None


def _config_value(value: JsonObject) -> ConfigValue:
    return ConfigValue({name: each for name, each in value.items() if name != "subject" and each is not None})


def encode_record(record: SchemasRecord) -> tuple[bytes, bytes | None]:
    return encode_key(record.key), encode_value(record.key, record.value)


def encode_key(key: RecordKey) -> bytes:
    fields: JsonObject = {"keytype": key.keytype}
    if key.keytype == "CONTEXT":
        fields |= {"tenant": key.tenant, "context": key.context}
    else:
        fields["subject"] = key.subject
    if key.keytype == "SCHEMA":
        fields["version"] = key.version
    fields["magic"] = key.magic
    return msgspec.json.encode(fields)


def encode_value(key: RecordKey, value: Value) -> bytes | None:
    """The value as JSON; None for a deleted key."""
    match value:
        case None:
            return None
        case SchemaValue():
            return msgspec.json.encode(_schema_fields(value))
        case ConfigValue():
            subject = {} if key.subject is None else {"subject": key.subject}
            return msgspec.json.encode(subject | value.fields)
        case ModeValue():
            subject = {} if key.subject is None else {"subject": key.subject}
            return msgspec.json.encode(subject | {"mode": value.mode})
        case DeleteSubjectValue():
            return msgspec.json.encode(value)
        case ContextValue():
            return msgspec.json.encode({"tenant": value.tenant, "context": value.context})


def _schema_fields(value: SchemaValue) -> JsonObject:
    fields: JsonObject = {"subject": value.subject, "version": value.version, "id": value.id}
    if value.guid:
        fields["guid"] = value.guid
    if value.schema_type != SchemaType.avro:
        fields["schemaType"] = value.schema_type
    if value.references:
        fields["references"] = value.references
    if value.metadata:
        fields["metadata"] = value.metadata
    if value.rule_set:
        fields["ruleSet"] = value.rule_set
    return fields | {"schema": value.schema, "deleted": value.deleted}


def schema_key(subject: str, version: int) -> RecordKey:
    return RecordKey("SCHEMA", subject, version, SCHEMA_MAGIC)


def config_key(subject: str | None) -> RecordKey:
    return RecordKey("CONFIG", subject, magic=OTHER_MAGIC)


def mode_key(subject: str | None) -> RecordKey:
    return RecordKey("MODE", subject, magic=OTHER_MAGIC)


def delete_subject_key(subject: str) -> RecordKey:
    return RecordKey("DELETE_SUBJECT", subject, magic=OTHER_MAGIC)


def context_record(context: str) -> SchemasRecord:
    key = RecordKey("CONTEXT", magic=OTHER_MAGIC, tenant=DEFAULT_TENANT, context=context)
    return SchemasRecord(key, ContextValue(context))
