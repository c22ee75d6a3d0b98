"""A schema registry in memory, which keeps all records that it has written."""

from typing import Any

import pytest

from ottla_broker.registry.deletions import plan_subject_deletion
from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.record_format import SchemasRecord, decode_record, encode_record
from ottla_broker.registry.registrations import NewVersion, Registration, plan_schema_registration
from ottla_broker.registry.schema import Schema
from ottla_broker.registry.state import RegistryState

INT, LONG = Schema("AVRO", '"int"'), Schema("AVRO", '"long"')


class Registry:
    """A state, and every record that was written to it."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.written: list[tuple[bytes, bytes | None]] = []

    def write(self, records: list[SchemasRecord]) -> None:
        for record in records:
            key, value = encode_record(record)
            self.written.append((key, value))
            decoded = decode_record(key, value)
            assert decoded is not None
            self.state.apply(decoded)

    def register(self, subject: str, schema: Schema, **wanted: int) -> tuple[int, int]:
        """Returns the version and the id. `wanted`: the `id` and `version` of an import."""
        registration = Registration(subject, schema, wanted.get("id"), wanted.get("version"))
        planned = plan_schema_registration(self.state, registration)
        if isinstance(planned, NewVersion):
            self.write(list(planned.records))
        return planned.version, planned.id

    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        versions, records = plan_subject_deletion(self.state, subject, permanent=permanent)
        self.write(records)
        return versions


def code_of(call: Any) -> int:
    with pytest.raises(RegistryError) as refused:
        call()
    return refused.value.code
