"""Soft and permanent deletes of subjects and versions. Pure.

A soft-deleted version is no longer offered or checked against, and its id is still resolved, so
that records stay readable. A schema that others refer to cannot be deleted.
"""

from collections.abc import Sequence
from typing import Final

from ottla_broker.registry import errors
from ottla_broker.registry.modes import check_writable
from ottla_broker.registry.record_format import (
    DeleteSubjectValue,
    SchemasRecord,
    SchemaValue,
    config_key,
    delete_subject_key,
    mode_key,
    schema_key,
    schema_value,
)
from ottla_broker.registry.schema import Schema, SchemaType
from ottla_broker.registry.state import RegistryState, SchemaVersion
from ottla_broker.registry.subject_names import context_of, highest_id_subject

HIGHEST_ID_VERSION: Final = 1


def plan_subject_deletion(
    state: RegistryState, subject: str, *, permanent: bool
) -> tuple[list[int], list[SchemasRecord]]:
    """The versions that are deleted, and the records that delete them. Raises RegistryError."""
    check_writable(state, subject)
    existing, active = state.versions(subject, with_deleted=True), state.versions(subject)
    if not existing:
        raise errors.subject_not_found(subject)
    if permanent and active:
        raise errors.subject_not_soft_deleted(subject)
    if not (permanent or active):
        raise errors.subject_soft_deleted(subject)
    chosen = existing if permanent else active
    for version in chosen:
        _check_unreferenced(state, version, permanent=permanent)
    if permanent:
        tombstones = [SchemasRecord(schema_key(subject, one.version), None) for one in chosen]
        records = [*_highest_id_records(state, chosen), *tombstones]
    else:
        last = DeleteSubjectValue(subject, chosen[-1].version)
        records = [SchemasRecord(delete_subject_key(subject), last), *_settings_removals(state, subject)]
    return [one.version for one in chosen], records


def plan_version_deletion(
    state: RegistryState, subject: str, number: int, *, permanent: bool
) -> tuple[int, list[SchemasRecord]]:
    """The version that is deleted, and the records that delete it. Raises RegistryError."""
    check_writable(state, subject)
    if not state.versions(subject, with_deleted=True):
        raise errors.subject_not_found(subject)
    version = state.version(subject, number, with_deleted=True)
    if version is None:
        raise errors.version_not_found(number)
    if permanent and not version.deleted:
        raise errors.version_not_soft_deleted(subject, version.version)
    if version.deleted and not permanent:
        raise errors.version_soft_deleted(subject, version.version)
    _check_unreferenced(state, version, permanent=permanent)
    key = schema_key(subject, version.version)
    if permanent:
        return version.version, [*_highest_id_records(state, [version]), SchemasRecord(key, None)]
    records = [SchemasRecord(key, soft_deleted_value(version))]
    if len(state.versions(subject)) == 1:
        records += _settings_removals(state, subject)
    return version.version, records


def soft_deleted_value(version: SchemaVersion) -> SchemaValue:
    subject, number, schema_id = version.subject, version.version, version.id
    return schema_value(subject, number, schema_id, version.schema, is_printed=version.is_printed, deleted=True)


def _highest_id_records(state: RegistryState, deleted: Sequence[SchemaVersion]) -> list[SchemasRecord]:
    """A record that keeps the highest id of the context when the last version that has it is
    deleted permanently; else no record.

    Compaction removes deleted versions from the topic. Without the record a registry that starts
    afterwards would assign the id to another schema, and consumers would decode old records with
    it. The record is a soft-deleted schema, so that other registries count its id too.
    """
    context = context_of(deleted[0].subject)
    highest = state.contexts[context].max_id
    remaining = [one for one in state.contexts[context].uses.get(highest, ()) if one not in deleted]
    if remaining or all(one.id != highest for one in deleted):
        return []
    subject = highest_id_subject(context)
    schema = Schema(SchemaType.avro, f'{{"type":"fixed","name":"HighestId{highest}","size":{highest}}}')
    value = schema_value(subject, HIGHEST_ID_VERSION, highest, schema, deleted=True)
    return [SchemasRecord(schema_key(subject, HIGHEST_ID_VERSION), value)]


def _check_unreferenced(state: RegistryState, version: SchemaVersion, *, permanent: bool) -> None:
    """Raises RegistryError if other schemas refer to the version; for a permanent deletion also if
    they are soft-deleted.
    """
    if state.referrers(version.subject, version.version, with_deleted=permanent):
        raise errors.reference_exists(version.subject, version.version)


def _settings_removals(state: RegistryState, subject: str) -> list[SchemasRecord]:
    """Records that remove the subject's own mode and config."""
    found = []
    if subject in state.modes:
        found.append(SchemasRecord(mode_key(subject), None))
    if subject in state.configs:
        found.append(SchemasRecord(config_key(subject), None))
    return found
