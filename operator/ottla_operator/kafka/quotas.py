"""Quotas of clients (DescribeClientQuotas, AlterClientQuotas; KIP-546)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.alter_client_quotas.v1.response import EntityData as AlteredEntity
from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import EntityData as DescribedEntity
from kio.static.primitive import f64, i8

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, find_error, none_on_error, raise_for_error

USER: Final = "user"
MATCH_ANY_NAME: Final = i8(2)
Entity = tuple[tuple[str, str | None], ...]
"""Pairs of type (`user`, `client-id`, `ip`) and name, sorted; a name of None is the default of its
type.
"""


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """`values`: new value by quota's name; None removes it."""

    entity: Entity
    values: Mapping[str, float | None] = field(default_factory=dict)


def user_entity(user: str) -> Entity:
    return ((USER, user),)


async def describe_quotas(client: KafkaClient) -> dict[Entity, dict[str, float]]:
    """The quotas of every entity that has some."""
    return await _describe(client, DescribeClientQuotasRequest(components=(), strict=False))


async def describe_user_quotas(client: KafkaClient) -> dict[str, dict[str, float]] | None:
    """Quotas of users by name, for any client id. None if the brokers do not support quotas."""
    named = ComponentData(entity_type=USER, match_type=MATCH_ANY_NAME, match=None)
    request = DescribeClientQuotasRequest(components=(named,), strict=True)
    found = await none_on_error(_describe(client, request), ErrorCode.unsupported_version)
    if found is None:
        return None
    return {str(name): values for ((_, name),), values in found.items() if name is not None}


async def alter_quotas(client: KafkaClient, changes: Iterable[QuotaChange]) -> dict[Entity, KafkaError]:
    """Changes quotas. Returns the error of each entity that was refused."""
    entries = tuple(_entry(it) for it in changes if it.values)
    if not entries:
        return {}
    response = await client.send_to_controller(AlterClientQuotasRequest(entries=entries, validate_only=False))
    errors: dict[Entity, KafkaError] = {}
    for entry in response.entries:
        entity = _entity(entry.entity)
        subject = f"quotas of {format_entity(entity)}"
        if (error := find_error(entry.error_code, entry.error_message, subject)) is not None:
            errors[entity] = error
    return errors


def format_entity(entity: Entity) -> str:
    """The entity as text, such as "user alice, client-id <default>"."""
    return ", ".join(f"{type_} {'<default>' if name is None else name}" for type_, name in entity)


async def _describe(client: KafkaClient, request: DescribeClientQuotasRequest) -> dict[Entity, dict[str, float]]:
    response = await client.send_to_controller(request)
    raise_for_error(response.error_code, response.error_message, "quotas")
    return {
        _entity(it.entity): {str(value.key): float(value.value) for value in it.values} for it in response.entries or ()
    }


def _entity(parts: Iterable[AlteredEntity | DescribedEntity]) -> Entity:
    return tuple(sorted((str(part.entity_type), part.entity_name) for part in parts))


def _entry(change: QuotaChange) -> EntryData:
    return EntryData(
        entity=tuple(EntityData(entity_type=type_, entity_name=name) for type_, name in change.entity),
        ops=tuple(
            OpData(key=key, value=f64(0.0 if value is None else value), remove=value is None)
            for key, value in change.values.items()
        ),
    )
