"""A schema registry without a topic and a broker, whose subjects tests name."""

from types import SimpleNamespace
from typing import Any, cast

from ottla_broker.registry.record_format import SchemasRecord, schema_key, schema_value
from ottla_broker.registry.schema import Schema
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.schemas_topic import SchemasTopic
from ottla_broker.registry.state import RegistryState
from ottla_broker.registry.worker_process import SchemaWorker


class LoadedRegistry:
    """`load` returns the registry, as a broker loads it at the first use."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.worker = SchemaWorker()

    async def load(self) -> SchemaRegistry:
        topic: Any = SimpleNamespace(state=self.state)
        return SchemaRegistry(cast(SchemasTopic, topic), self.worker)

    def register(self, subject: str, number: int, schema_id: int, text: str) -> None:
        value = schema_value(subject, number, schema_id, Schema("AVRO", text))
        self.state.apply(SchemasRecord(schema_key(subject, number), value))
