"""Observes and changes a subject of a schema registry."""

import asyncio

from ottla_operator.kafka.schema_registry import RegistryTls, SchemaRegistryClient
from ottla_operator.plan.registry_access import RegistryAccess
from ottla_operator.plan.schemas import DesiredSchema, ObservedSubject, RegisterSchema, SchemaChange, SetCompatibility


def connect_to_registry(access: RegistryAccess) -> SchemaRegistryClient:
    context = access.security.ssl_context()
    tls = None if context is None else RegistryTls(context, access.security.server_name)
    return SchemaRegistryClient(*access.urls, login=access.login, tls=tls)


async def observe_subject(registry: SchemaRegistryClient, desired: DesiredSchema) -> ObservedSubject:
    """Raises RegistryRefusal, Unreachable."""

    def observe() -> ObservedSubject:
        level = registry.get_compatibility(desired.subject)
        found = registry.find_version(desired.subject, desired.to_request())
        if found is None:
            return ObservedSubject(level)
        latest = registry.get_version(desired.subject)["version"]
        return ObservedSubject(level, found["version"], found["id"], latest)

    return await asyncio.to_thread(observe)


async def apply_change(registry: SchemaRegistryClient, change: SchemaChange) -> None:
    """Raises RegistryRefusal, Unreachable."""
    match change:
        case SetCompatibility():
            await asyncio.to_thread(registry.set_compatibility, change.subject, change.level)
        case RegisterSchema():
            await asyncio.to_thread(registry.register, change.schema.subject, change.schema.to_request())


async def delete_subject(registry: SchemaRegistryClient, subject: str) -> None:
    """Raises RegistryRefusal, Unreachable."""
    await asyncio.to_thread(registry.delete_subject, subject)
