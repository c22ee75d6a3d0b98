"""The registry's operations on schemas: parse, look up, check, register, delete.

Schemas are parsed and compared by the worker process; decisions are pure and rest on the state of
the topic `_schemas`.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from ottla_broker.registry import errors
from ottla_broker.registry.compatibility import CompatibilityLevel
from ottla_broker.registry.languages.value_mismatch import ValueMismatch
from ottla_broker.registry.record_format import SchemasRecord
from ottla_broker.registry.registrations import (
    CompatibilityCheck,
    NewVersion,
    Registration,
    pin_references,
    plan_schema_registration,
    resolve_references,
)
from ottla_broker.registry.schema import SCHEMA_TYPES, Schema, SchemaSource
from ottla_broker.registry.schemas_topic import SchemasTopic
from ottla_broker.registry.state import RegistryState, SchemaVersion
from ottla_broker.registry.subject_names import context_of
from ottla_broker.registry.worker_messages import CompareRequest, EncodeRequest, FormatRequest, PrintRequest
from ottla_broker.registry.worker_process import SchemaWorker

logger = logging.getLogger(__name__)

MAX_CACHED: Final = 2000
"""Printed texts that are cached, the most recently used ones."""
MAX_CACHED_CHARACTERS: Final = 64 << 10
"""Largest length of a cached schema; longer ones are parsed again each time."""
MAX_ATTEMPTS: Final = 5
"""Checks of one registration while other clients change its subject."""

T = TypeVar("T")


class SchemaRegistry:
    def __init__(self, topic: SchemasTopic, worker: SchemaWorker) -> None:
        self._topic = topic
        self._worker = worker
        self._printed: OrderedDict[tuple[bytes, str, bool], str] = OrderedDict()

    @property
    def state(self) -> RegistryState:
        return self._topic.state

    async def write(self, decide: Callable[[RegistryState], tuple[T, list[SchemasRecord]]]) -> T:
        """Calls `decide` with the newest state at the leader, appends the records that it returns,
        and returns its result (`SchemasTopic.write`). Raises RegistryError, NotLeader.
        """
        return await self._topic.write(decide)

    # -- schemas of requests

    async def parse_schema(self, subject: str, schema: Schema, *, normalize: bool = False) -> Schema:
        """Validates the schema, and returns it as the registry stores it: with the numbers of
        referenced versions, and the text as its language prints it. Raises RegistryError.
        """
        if schema.type not in SCHEMA_TYPES:
            raise errors.invalid_schema(f"unknown schemaType {schema.type!r}; allowed: {', '.join(SCHEMA_TYPES)}")
        references = pin_references(self.state, subject, schema.references)
        schema = msgspec.structs.replace(schema, references=references)
        fingerprint = schema.fingerprint()
        context = self.state.contexts.get(context_of(subject))
        if not normalize and context is not None and fingerprint in context.ids:
            return schema
        key = fingerprint, context_of(subject), normalize
        if (text := self._printed.get(key)) is not None:
            self._printed.move_to_end(key)
            return msgspec.structs.replace(schema, text=text)
        response = await self._worker.send(PrintRequest(self.resolve_source(subject, schema), normalize))
        if len(response.text) <= MAX_CACHED_CHARACTERS:
            self._printed[key] = response.text
            if len(self._printed) > MAX_CACHED:
                self._printed.popitem(last=False)
        return msgspec.structs.replace(schema, text=response.text)

    async def find_version(self, subject: str, schema: Schema, *, with_deleted: bool) -> SchemaVersion | None:
        """The newest version of the subject that has the schema, or None. Raises RegistryError."""
        normal_form = await self.find_normal_form(subject, schema)
        return self.state.find_in_subject(subject, schema, with_deleted=with_deleted, normal_form=normal_form)

    async def find_normal_form(self, subject: str, schema: Schema) -> bytes | None:
        """The fingerprint of the normalized schema; None if no other registry has written versions
        of the subject. Adds the normal forms of these versions to the state. Raises RegistryError.

        Another registry stores another text of the same schema, so texts alone do not tell whether
        the subject has it.
        """
        versions = self.state.foreign_versions(subject, schema.type)
        for version in versions:
            known = self.state.contexts[context_of(subject)].normal_forms
            if version.id not in known:
                try:
                    known[version.id] = await self._normalize(subject, version.schema)
                except errors.RegistryError as reason:
                    logger.info("schema %d of %s cannot be compared with others: %s", version.id, subject, reason)
                    known[version.id] = b""
        return await self._normalize(subject, schema) if versions else None

    async def _normalize(self, subject: str, schema: Schema) -> bytes:
        return (await self.parse_schema(subject, schema, normalize=True)).fingerprint()

    def resolve_source(self, subject: str, schema: Schema) -> SchemaSource:
        """The schema's text with the schemas that it refers to. Raises RegistryError if one is
        missing.
        """
        return SchemaSource(schema.type, schema.text, tuple(resolve_references(self.state, subject, schema)))

    async def format_schema(self, subject: str, schema: Schema, form: str) -> str:
        """The schema's text in the form that a client's parameter `format` names; empty: as stored.
        Raises RegistryError.
        """
        if not form:
            return schema.text
        return (await self._worker.send(FormatRequest(self.resolve_source(subject, schema), form))).text

    async def encode_value(self, version: SchemaVersion, text: str, message: str = "") -> bytes:
        """The bytes that serialisers of the schema's language write for the JSON value `text`,
        without the schema id in front of them. `message`: a message of a Protobuf schema; empty:
        the first. Raises RegistryError, ValueMismatch.
        """
        source = self.resolve_source(version.subject, version.schema)
        response = await self._worker.send(EncodeRequest(source, text, message))
        if response.mismatch:
            raise ValueMismatch(response.mismatch)
        return response.data

    # -- compatibility

    async def find_incompatibilities(
        self, subject: str, schema: Schema, level: CompatibilityLevel, versions: Sequence[SchemaVersion]
    ) -> list[str]:
        """Compares the schema with the versions in their order. Returns the reasons of the first
        that it is incompatible with; empty if it is compatible with all. Raises RegistryError.
        """
        new = None
        for version in versions:
            if version.schema.fingerprint() == schema.fingerprint():
                continue
            if version.schema.type != schema.type:
                found = [f"Incompatible because of different schema type: {version.schema.type} and {schema.type}"]
            else:
                new = new or self.resolve_source(subject, schema)
                found = await self._compare(new, self.resolve_source(version.subject, version.schema), level)
            if found:
                return [
                    *found,
                    f"{{oldSchemaVersion: {version.version}}}",
                    f"{{oldSchema: '{version.schema.text}'}}",
                    f"{{compatibility: '{level}'}}",
                ]
        return []

    async def _compare(self, new: SchemaSource, old: SchemaSource, level: CompatibilityLevel) -> list[str]:
        found = []
        if level.new_reads_old:
            found += (await self._worker.send(CompareRequest(new, old))).incompatibilities
        if level.old_reads_new:
            found += (await self._worker.send(CompareRequest(old, new))).incompatibilities
        return [str(one) for one in found]

    # -- registration

    async def register(self, registration: Registration) -> tuple[int, int]:
        """Registers a schema, and returns its version and its id in the subject: those that it had
        already, or new ones.

        Compatibility is checked before the write, and again if the subject has changed meanwhile.
        Raises RegistryError, NotLeader.
        """
        planned = plan_schema_registration(self.state, registration)
        for _ in range(MAX_ATTEMPTS):
            if isinstance(planned, SchemaVersion):
                return planned.version, planned.id
            await self._check_compatible(registration, planned.check)
            checked = planned.check

            def decide(
                state: RegistryState, checked: CompatibilityCheck = checked
            ) -> tuple[SchemaVersion | NewVersion, list[SchemasRecord]]:
                again = plan_schema_registration(state, registration)
                if isinstance(again, NewVersion) and again.check == checked:
                    return again, list(again.records)
                return again, []

            planned = await self.write(decide)
            if isinstance(planned, NewVersion) and planned.check == checked:
                return planned.version, planned.id
        raise errors.operation_timed_out(f"other clients keep changing subject {registration.subject!r}")

    async def _check_compatible(self, registration: Registration, check: CompatibilityCheck) -> None:
        found = await self.find_incompatibilities(
            registration.subject, registration.schema, check.level, check.versions
        )
        if found:
            raise errors.incompatible(
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{registration.subject}", details: [{", ".join(found)}]'
            )
