"""A schema registry in which tests register schemas, without a topic and a broker."""

from types import SimpleNamespace
from typing import Any, cast

from ottla_broker.registry.record_format import SchemasRecord, schema_key, schema_value
from ottla_broker.registry.schema import Schema
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.schemas_topic import SchemasTopic
from ottla_broker.registry.state import RegistryState
from ottla_broker.registry.worker_process import SchemaWorker


class LoadedRegistry:
    """Stands in for a LazyRegistry. `load` returns a registry with the registered schemas."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.worker = SchemaWorker()

    async def load(self) -> SchemaRegistry:
        topic: Any = SimpleNamespace(state=self.state)
        return SchemaRegistry(cast(SchemasTopic, topic), self.worker)

    def register(self, subject: str, version: int, schema_id: int, text: str) -> None:
        value = schema_value(subject, version, schema_id, Schema("AVRO", text))
        self.state.apply(SchemasRecord(schema_key(subject, version), value))
