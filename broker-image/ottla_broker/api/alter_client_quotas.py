"""AlterClientQuotas (49), versions 0–1.

- Sets and removes quotas of users, of client ids, of pairs of them, and of IP addresses (KIP-546,
  KIP-612); needs ALTER_CONFIGS on the cluster. All entities that are valid change in one commit.
- Each entity has one result, and changes as a whole or not at all. The message of INVALID_REQUEST
  says what is allowed. An entity or a key that a request names twice is invalid.
- An IP address is written as such: host names are not resolved.
- v1 is flexible.
"""

from collections import Counter
from collections.abc import Sequence

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, OpData
from kio.schema.alter_client_quotas.v1.request import EntityData as RequestEntity
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntityData, EntryData

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.security.client_quotas import QuotaEntity, check_value, make_entity
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError

API = Api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    flexible=1,
    is_forwarded=True,
    rights=(Right(Operation.alter_configs, ResourceType.cluster),),
)

EntityParts = tuple[tuple[str, str | None], ...]


@API.handler()
async def alter_client_quotas(ctx: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    entities = [entity_parts(entry.entity) for entry in request.entries]
    times_named = Counter(entities)
    outcomes: dict[EntityParts, KafkaError] = {}
    changes: dict[QuotaEntity, dict[str, float | None]] = {}
    try:
        ctx.check_authorized(Operation.alter_configs, CLUSTER)
        controller = ctx.broker.active_controller()
        for entry, parts in zip(request.entries, entities, strict=True):
            try:
                entity = make_entity(parts)
                if times_named[parts] > 1:
                    raise KafkaError(ErrorCode.invalid_request, "the request names the quota entity twice")
                changes[entity] = read_changes(entity, entry.ops)
                outcomes[parts] = NO_ERROR
            except KafkaError as error:
                outcomes[parts] = error
        await controller.alter_client_quotas(changes, validate_only=request.validate_only)
    except KafkaError as error:
        outcomes = dict.fromkeys(entities, error)
    return AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(
            EntryData(
                error_code=error.code,
                error_message=error.message or None,
                entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in parts),
            )
            for parts, error in outcomes.items()
        ),
    )


def entity_parts(entity: Sequence[RequestEntity]) -> EntityParts:
    return tuple(sorted(((part.entity_type, part.entity_name) for part in entity), key=str))


def read_changes(entity: QuotaEntity, ops: Sequence[OpData]) -> dict[str, float | None]:
    """New values by key; None removes the quota. Raises INVALID_REQUEST."""
    if twice := [key for key, count in Counter(op.key for op in ops).items() if count > 1]:
        raise KafkaError(ErrorCode.invalid_request, f"the request changes {twice[0]} twice")
    for op in ops:
        if not op.remove:
            check_value(entity, op.key, op.value)
    return {op.key: None if op.remove else float(op.value) for op in ops}
