"""The schema registry of this broker, as a user of the console may use it.

The rules are those of the registry's REST interface: rights on a subject are those on the topic
that it is named after.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from ottla_broker.console.access import ConsoleUser
from ottla_broker.console.requests import PageError
from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.registry.schema import SchemaSource
from ottla_broker.registry.schema_registry import SchemaRegistry
from ottla_broker.registry.subject_names import DEFAULT_CONTEXT, topic_of
from ottla_broker.security.authorizer import Operation, Resource

LOAD_TIMEOUT_S: Final = 10.0
NO_REGISTRY: Final = "This broker serves no schema registry: schema.registry.listener is not set."


async def load_registry(registry: LazyRegistry | None) -> SchemaRegistry:
    """The registry, loaded if it was not used before (`LazyRegistry.load`). Raises PageError if the
    broker serves none, or after LOAD_TIMEOUT_S.
    """
    if registry is None:
        raise PageError(404, NO_REGISTRY)
    try:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            found: SchemaRegistry = await registry.load()
            return found
    except TimeoutError:
        raise PageError(503, "The schema registry is still reading its topic; try again soon.") from None


def may_on_subject(user: ConsoleUser, operation: Operation, subject: str) -> bool:
    return user.may(operation, Resource.topic(topic_of(subject)))


def may_describe_subject(user: ConsoleUser, subject: str) -> bool:
    return may_on_subject(user, Operation.describe, subject)


async def find_schemas(
    registry: LazyRegistry | None, user: ConsoleUser, ids: Sequence[int]
) -> dict[int, SchemaSource | None]:
    """Schemas of the default context by id. None: there is none with the id, the user may describe
    none of its subjects, or its references cannot be resolved. Raises PageError.
    """
    loaded = await load_registry(registry)
    return {schema_id: _find_schema(loaded, user, schema_id) for schema_id in ids}


def _find_schema(registry: SchemaRegistry, user: ConsoleUser, schema_id: int) -> SchemaSource | None:
    context = registry.state.contexts[DEFAULT_CONTEXT]
    schema = context.schemas.get(schema_id)
    subjects = {version.subject for version in context.uses.get(schema_id, ())}
    if schema is None or not any(may_describe_subject(user, subject) for subject in subjects):
        return None
    try:
        return registry.resolve_source(subjects.pop(), schema)
    except RegistryError:
        return None
