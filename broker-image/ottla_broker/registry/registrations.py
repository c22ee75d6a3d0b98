"""Plans the registration of a schema: its version, its id, and the versions that it must be
compatible with. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla_broker.registry import errors
from ottla_broker.registry.compatibility import (
    CompatibilityLevel,
    compatibility_group,
    level_of,
    versions_to_check,
)
from ottla_broker.registry.inherited_metadata import find_config, with_inherited
from ottla_broker.registry.modes import Mode, check_writable, mode_of
from ottla_broker.registry.record_format import SchemasRecord, context_record, schema_key, schema_value
from ottla_broker.registry.schema import LATEST, NamedSchema, Reference, Schema
from ottla_broker.registry.state import RegistryState, SchemaVersion
from ottla_broker.registry.subject_names import context_of, is_valid_subject, qualify_subject

MAX_REFERENCES: Final = 1000
"""Schemas that one schema may refer to, also indirectly."""
MAX_REFERENCED_CHARACTERS: Final = 16 << 20
"""Total length of the texts of these schemas."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a client asks to register. `schema.text`: as `parse_schema` prints it. `id`: required in
    IMPORT mode; in other modes it must be None, and the registry assigns the id. `version`: outside
    of IMPORT mode it must be the next one, or the one that has the schema already; None: the
    registry assigns it. `normal_form`: as in `RegistryState.find_in_subject`.
    """

    subject: str
    schema: Schema
    id: int | None = None
    version: int | None = None
    normal_form: bytes | None = None


@dataclass(frozen=True, slots=True)
class CompatibilityCheck:
    """The level, and the versions that a new schema is checked against, the newest first."""

    level: CompatibilityLevel
    versions: tuple[SchemaVersion, ...]


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that does not exist yet. `records`: register it, once `check` has found its schema
    compatible.
    """

    version: int
    id: int
    records: tuple[SchemasRecord, ...]
    check: CompatibilityCheck


def plan_schema_registration(state: RegistryState, registration: Registration) -> SchemaVersion | NewVersion:
    """The version of the subject that has the schema already, or a new one. Raises
    RegistryError.
    """
    subject = registration.subject
    if not is_valid_subject(subject):
        raise errors.invalid_subject(subject)
    check_writable(state, subject)
    is_import = mode_of(state, subject) is Mode.import_
    if (registration.id is not None) is not is_import:
        mode = "read-write" if is_import else "import"
        raise errors.operation_not_permitted(f"Subject {subject} is not in {mode} mode")
    if not is_import:
        schema = with_inherited(state, subject, registration.schema)
        registration = replace(registration, schema=schema)
    existing = state.find_in_subject(subject, registration.schema, normal_form=registration.normal_form)
    if (
        existing is not None
        and (registration.id in (None, existing.id))
        and (registration.version in (None, existing.version))
    ):
        return existing
    if is_import:
        return _plan_import(state, registration)
    registration = _with_deleted_text(state, registration)
    number = next_version(state, subject)
    if registration.version not in (None, number):
        raise errors.RegistryError(42202, f"Version {registration.version} is not the next one, which is {number}.")
    check = plan_check(state, subject, registration.schema)
    return _new_version(state, registration, number, allocate_id(state, registration), check)


def _with_deleted_text(state: RegistryState, registration: Registration) -> Registration:
    """The registration with the text of the subject's soft-deleted version that has an equal
    schema, written by another registry. The new version gets that version's id, and one id must not
    have two texts.
    """
    subject, schema = registration.subject, registration.schema
    known = state.find_in_subject(subject, schema, with_deleted=True, normal_form=registration.normal_form)
    return registration if known is None else replace(registration, schema=known.schema)


def _plan_import(state: RegistryState, registration: Registration) -> NewVersion:
    schema_id = allocate_id(state, registration) if registration.id is None else registration.id
    context = state.contexts.get(context_of(registration.subject))
    known = None if context is None else context.schemas.get(schema_id)
    if known is not None and known.fingerprint() != registration.schema.fingerprint():
        raise errors.operation_not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
    number = registration.version or next_version(state, registration.subject)
    return _new_version(state, registration, number, schema_id, CompatibilityCheck(CompatibilityLevel.none, ()))


def _new_version(
    state: RegistryState, registration: Registration, number: int, schema_id: int, check: CompatibilityCheck
) -> NewVersion:
    subject = registration.subject
    is_printed = state.is_printed(subject, schema_id)
    value = schema_value(subject, number, schema_id, registration.schema, is_printed=is_printed)
    records = [SchemasRecord(schema_key(subject, number), value)]
    if (context := context_of(subject)) not in state.contexts:
        records.insert(0, context_record(context))  # Confluent's registry lists contexts from these
    return NewVersion(number, schema_id, tuple(records), check)


def next_version(state: RegistryState, subject: str) -> int:
    """One more than the highest number of a version of the subject, soft-deleted or not."""
    return max(state.subjects.get(subject, {}), default=0) + 1


def allocate_id(state: RegistryState, registration: Registration) -> int:
    """The id that the schema has in its context already, or the next one."""
    context = state.contexts.get(context_of(registration.subject))
    if context is None:
        return 1
    known = context.ids.get(registration.schema.fingerprint())
    return context.max_id + 1 if known is None else known


def plan_check(state: RegistryState, subject: str, schema: Schema) -> CompatibilityCheck:
    """The check that a registration of the schema has to pass: against the versions that the
    subject's level demands. If the subject's config (`find_config`) has `compatibilityGroup`, only
    versions of the schema's own group count.
    """
    level = level_of(state, subject)
    config = find_config(state, subject)
    group = compatibility_group(config, schema.metadata)
    versions = state.versions(subject)
    if config.get("compatibilityGroup") is not None:
        versions = [one for one in versions if compatibility_group(config, one.schema.metadata) == group]
    return CompatibilityCheck(level, tuple(versions_to_check(level, versions)))


# -- references


def pin_references(state: RegistryState, subject: str, references: Sequence[Reference]) -> tuple[Reference, ...]:
    """Replaces "latest" in references by the number of the version. Raises RegistryError."""
    return tuple(Reference(one.name, one.subject, _find_referenced(state, subject, one).version) for one in references)


def resolve_references(state: RegistryState, subject: str, schema: Schema) -> list[NamedSchema]:
    """The schemas that a schema refers to, also indirectly: each once, and after the schemas that
    it refers to. Raises RegistryError.
    """
    found: dict[str, NamedSchema] = {}
    visited: set[tuple[str, str, int]] = set()
    character_count = 0
    stack: list[tuple[str, Reference, bool]] = [(subject, one, False) for one in reversed(schema.references)]
    while stack:
        of_subject, reference, is_expanded = stack.pop()
        version = _find_referenced(state, of_subject, reference)
        place = (reference.name, version.subject, version.version)
        if is_expanded:
            found.setdefault(reference.name, NamedSchema(reference.name, version.schema.type, version.schema.text))
            continue
        if place in visited:
            continue
        visited.add(place)
        character_count += len(version.schema.text)
        if len(visited) > MAX_REFERENCES or character_count > MAX_REFERENCED_CHARACTERS:
            raise errors.invalid_schema(
                f"it refers to more than {MAX_REFERENCES} schemas or {MAX_REFERENCED_CHARACTERS} characters"
            )
        stack.append((of_subject, reference, True))
        stack += [(version.subject, one, False) for one in reversed(version.schema.references)]
    return list(found.values())


def _find_referenced(state: RegistryState, subject: str, reference: Reference) -> SchemaVersion:
    """The version that a schema of the subject refers to. Raises RegistryError."""
    name = qualify_subject(reference.subject, context_of(subject))
    number = LATEST if reference.version < 0 else reference.version
    # A soft-deleted version is still read by those that refer to it.
    version = state.version(name, number, with_deleted=number != LATEST)
    if version is None:
        raise errors.invalid_schema(
            f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
        )
    return version
