"""The state that the records of `_schemas` describe: subjects with their versions, schemas by id,
settings.

State is a function of the records, in their order: every broker with the registry has the same.
A schema is held once, however many subjects have it.
"""

from collections.abc import Iterator

from ottla_broker.registry.record_format import (
    ConfigValue,
    ContextValue,
    DeleteSubjectValue,
    ModeValue,
    RecordKey,
    SchemasRecord,
    SchemaValue,
    encode_key,
)
from ottla_broker.registry.schema import LATEST, JsonObject, Reference, Schema
from ottla_broker.registry.subject_names import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    HIGHEST_ID_NAME,
    context_of,
    parse_subject,
    qualify_subject,
)


class SchemaVersion:
    """One version of a subject. `deleted`: it is soft-deleted. `is_printed`: its text has the form
    that this registry prints; False if another registry has written it.
    """

    __slots__ = ("deleted", "id", "is_printed", "schema", "subject", "version")

    def __init__(
        self, subject: str, version: int, schema_id: int, schema: Schema, *, deleted: bool, is_printed: bool
    ) -> None:
        self.subject = subject
        self.version = version
        self.id = schema_id
        self.schema = schema
        self.deleted = deleted
        self.is_printed = is_printed


class Context:
    """The schemas of a context. `schemas`: by id. `ids`: by the schema's fingerprint. `uses`: the
    versions of subjects that have a schema, by its id.

    `normal_forms`: by id, fingerprints of the normalized schemas that another registry has written;
    empty for one that cannot be normalized. SchemaRegistry adds them when it needs them.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, Schema] = {}
        self.ids: dict[bytes, int] = {}
        self.uses: dict[int, list[SchemaVersion]] = {}
        self.normal_forms: dict[int, bytes] = {}
        self.max_id = 0


class RegistryState:
    """`subjects`: versions by subject and number. `configs` and `modes`: by subject, by
    `:.context:`, and None for the whole registry. `references`: (subject, version) of the schemas
    that refer to a (subject, version). `guids`: (context, id) by GUID. `foreign_keys`: keys of the
    topic as other registries have written them, by the key as this registry writes it.
    """

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, SchemaVersion]] = {}
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self.configs: dict[str | None, JsonObject] = {}
        self.modes: dict[str | None, str] = {}
        self.references: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self.guids: dict[str, tuple[str, int]] = {}
        self.foreign_keys: dict[bytes, set[bytes]] = {}

    # -- records

    def apply(self, record: SchemasRecord) -> None:
        """Applies the next record of the topic."""
        key, value = record.key, record.value
        if record.foreign_key is not None:
            self.foreign_keys.setdefault(encode_key(key), set()).add(record.foreign_key)
        match value:
            case SchemaValue() if parse_subject(value.subject).name == HIGHEST_ID_NAME:
                context = self.contexts.setdefault(context_of(value.subject), Context())
                context.max_id = max(context.max_id, value.id)
            case SchemaValue():
                self._put_version(value)
            case ConfigValue():
                self.configs[key.subject] = value.fields
            case ModeValue():
                self.modes[key.subject] = value.mode
            case DeleteSubjectValue():
                for version in self.subjects.get(value.subject, {}).values():
                    version.deleted = version.deleted or version.version <= value.version
            case ContextValue():
                self.contexts.setdefault(value.context, Context())
            case None:
                self._remove(key)

    def _put_version(self, value: SchemaValue) -> None:
        subject, number = value.subject, value.version
        context = self.contexts.setdefault(context_of(subject), Context())
        previous = self.subjects.get(subject, {}).get(number)
        if previous is not None:
            if previous.id == value.id and previous.schema.text == value.schema:
                previous.deleted = value.deleted
                return
            self._remove_version(previous)
        schema = Schema(value.schema_type, value.schema, value.references, value.metadata, value.rule_set)
        known = context.schemas.get(value.id)
        fingerprint = schema.fingerprint()
        if known is not None and known.fingerprint() == fingerprint:
            schema = known
        else:
            context.schemas[value.id] = schema
            context.ids.setdefault(fingerprint, value.id)
            for guid in known_guids(value, schema):
                if self.find_by_guid(guid) is None:
                    self.guids[guid] = context_of(subject), value.id
        context.max_id = max(context.max_id, value.id)
        is_printed = value.guid is not None
        version = SchemaVersion(subject, number, value.id, schema, deleted=value.deleted, is_printed=is_printed)
        self.subjects.setdefault(subject, {})[number] = version
        context.uses.setdefault(value.id, []).append(version)
        for reference in schema.references:
            self.references.setdefault(self._referenced_version(subject, reference), set()).add((subject, number))

    def _referenced_version(self, subject: str, reference: Reference) -> tuple[str, int]:
        return qualify_subject(reference.subject, context_of(subject)), reference.version

    def _remove(self, key: RecordKey) -> None:
        match key.keytype:
            case "SCHEMA" if key.subject is not None and key.version is not None:
                if (version := self.subjects.get(key.subject, {}).get(key.version)) is not None:
                    self._remove_version(version)
            case "CLEAR_SUBJECT" if key.subject is not None:
                for version in list(self.subjects.get(key.subject, {}).values()):
                    self._remove_version(version)
            case "CONFIG":
                self.configs.pop(key.subject, None)
            case "MODE":
                self.modes.pop(key.subject, None)

    def _remove_version(self, version: SchemaVersion) -> None:
        """Removes a version, and its schema and id when no other version has them."""
        versions = self.subjects[version.subject]
        del versions[version.version]
        if not versions:
            del self.subjects[version.subject]
        context = self.contexts[context_of(version.subject)]
        uses = context.uses[version.id]
        uses.remove(version)
        if not uses:
            del context.uses[version.id]
            schema = context.schemas.pop(version.id)
            for fingerprint in {schema.fingerprint(), version.schema.fingerprint()}:
                if context.ids.get(fingerprint) == version.id:
                    del context.ids[fingerprint]
            context.normal_forms.pop(version.id, None)
            self._remove_guid(schema)
        for reference in version.schema.references:
            self.references.get(self._referenced_version(version.subject, reference), set()).discard(
                (version.subject, version.version)
            )

    def _remove_guid(self, schema: Schema) -> None:
        guid, fingerprint = schema.guid(), schema.fingerprint()
        self.guids.pop(guid, None)
        for name, context in self.contexts.items():
            if (schema_id := context.ids.get(fingerprint)) is not None:
                self.guids[guid] = name, schema_id
                return

    # -- questions

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[SchemaVersion]:
        """Versions of a subject in ascending order. `with_deleted`: also soft-deleted ones, as in
        the other methods.
        """
        found = self.subjects.get(subject, {})
        return [found[number] for number in sorted(found) if with_deleted or not found[number].deleted]

    def version(self, subject: str, number: int, *, with_deleted: bool = False) -> SchemaVersion | None:
        """The version with that number, or None. LATEST is the newest."""
        if number == LATEST:
            versions = self.versions(subject, with_deleted=with_deleted)
            return versions[-1] if versions else None
        found = self.subjects.get(subject, {}).get(number)
        return found if found is not None and (with_deleted or not found.deleted) else None

    def find_in_subject(
        self, subject: str, schema: Schema, *, with_deleted: bool = False, normal_form: bytes | None = None
    ) -> SchemaVersion | None:
        """The newest version of the subject that has the schema, or None.

        `normal_form`: fingerprint of the normalized schema, to compare it with schemas that another
        registry has written; None if there are none.
        """
        fingerprint = schema.fingerprint()
        versions = self.versions(subject, with_deleted=with_deleted)[::-1]
        for version in versions:
            if version.schema.fingerprint() == fingerprint:
                return version
        if normal_form is None or not versions:
            return None
        known = self.contexts[context_of(subject)].normal_forms
        return next((version for version in versions if known.get(version.id) == normal_form), None)

    def foreign_versions(self, subject: str, schema_type: str) -> list[SchemaVersion]:
        """Versions of the type whose text another registry has written, also soft-deleted ones."""
        versions = self.versions(subject, with_deleted=True)
        return [one for one in versions if not one.is_printed and one.schema.type == schema_type]

    def is_printed(self, subject: str, schema_id: int) -> bool:
        """False if another registry has written the text of the schema with that id."""
        context = self.contexts.get(context_of(subject))
        return context is None or all(one.is_printed for one in context.uses.get(schema_id, ()))

    def find_by_guid(self, guid: str) -> tuple[str, int] | None:
        """The (context, id) of the schema, or None. Another context may have the schema too."""
        found = self.guids.get(guid)
        return found if found is not None and found[1] in self.contexts[found[0]].schemas else None

    def referrers(self, subject: str, number: int, *, with_deleted: bool = False) -> list[SchemaVersion]:
        """The versions whose schemas refer to this version."""
        found = (self.subjects[by][at] for by, at in sorted(self.references.get((subject, number), ())))
        return [version for version in found if with_deleted or not version.deleted]

    def setting_scopes(self, subject: str | None) -> Iterator[str | None]:
        """The scopes in which a setting of the subject is looked up, in this order: the subject,
        its context, the whole registry (None), and `:.__GLOBAL:`, Confluent's global context.
        """
        if subject:
            yield subject
            context = context_of(subject)
            if context != DEFAULT_CONTEXT and subject != f":{context}:":
                yield f":{context}:"
        yield None
        yield f":{GLOBAL_CONTEXT}:"


def known_guids(value: SchemaValue, schema: Schema) -> set[str]:
    """The GUIDs by which clients may know the schema: the one that it has here, and the one of the
    registry that wrote the record.
    """
    written = value.find_guid()
    if written is not None and schema.is_plain_avro and value.guid is not None:
        return {written}
    return {schema.guid()} if written is None else {schema.guid(), written}
