"""The kinds of resource that have configs, and what must hold before one is described or altered."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.static.primitive import i8

from ottla_broker.api.context import Context
from ottla_broker.config import loggers
from ottla_broker.metadata.controller_link import RELAYED_BY
from ottla_broker.metadata.topic_names import check_topic_name
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.wire.errors import ErrorCode, KafkaError


class ConfigResource(IntEnum):
    """Kafka's codes (`org.apache.kafka.common.config.ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Change(IntEnum):
    """What IncrementalAlterConfigs does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def must_may(ctx: Context, operation: Operation, kind: int, name: str) -> None:
    """TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED; INVALID_REQUEST for a kind that Kafka does not know."""
    match kind:
        case ConfigResource.TOPIC:
            allowed, code = ctx.may(operation, Resource.topic(name)), ErrorCode.topic_authorization_failed
        case ConfigResource.GROUP:
            allowed, code = ctx.may(operation, Resource.group(name)), ErrorCode.group_authorization_failed
        case ConfigResource.BROKER | ConfigResource.BROKER_LOGGER | ConfigResource.CLIENT_METRICS:
            allowed, code = ctx.may(operation, CLUSTER), ErrorCode.cluster_authorization_failed
        case _:
            kinds = ", ".join(f"{kind.value} ({kind.name.lower()})" for kind in ConfigResource)
            raise KafkaError(
                ErrorCode.invalid_request, f"resource type {kind} has no configs; those that have: {kinds}"
            )
    if not allowed:
        raise KafkaError(code)


def must_be_topic(ctx: Context, name: str) -> None:
    """INVALID_TOPIC_EXCEPTION or UNKNOWN_TOPIC_OR_PARTITION."""
    check_topic_name(name)
    if name not in ctx.broker.image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


def must_be_this_broker(ctx: Context, name: str) -> None:
    """INVALID_REQUEST: what only a broker itself knows must be asked of it."""
    if broker_id(name) != ctx.broker.node_id:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"this is broker {ctx.broker.node_id}; what concerns broker {name!r} must be asked of it",
        )


def broker_id(name: str) -> int:
    """INVALID_REQUEST when the name is no number."""
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(
            ErrorCode.invalid_request, f"{name!r} is no broker's id: allowed is a number, or nothing for all brokers"
        )
    return int(name)


def current(ctx: Context, kind: int, name: str) -> Mapping[str, str]:
    """What is set for a resource in the metadata now."""
    return ctx.broker.image.configs.get((kind, name), {})


async def change(ctx: Context, kind: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Checks and commits the changes of one resource, None removing a setting. INVALID_CONFIG and the errors of the checks above."""
    config = ctx.broker.config
    match kind:
        case ConfigResource.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "a topic's name is needed: topics have no common configs")
            if ctx.broker.controller is not None or passed_on(
                ctx
            ):  # else the controller looks: it knows topics that are new
                must_be_topic(ctx, name)
                config.check_topic(changes, current(ctx, kind, name))
        case ConfigResource.BROKER:
            if name:
                if not passed_on(ctx):  # else the broker that it concerns has looked at it
                    must_be_this_broker(ctx, name)
                name = str(broker_id(name))
            try:
                config.check_broker(changes, everywhere=name == "")
            except KafkaError as reason:  # Kafka's clients know INVALID_CONFIG from topics only
                raise KafkaError(ErrorCode.invalid_request, reason.message) from reason
        case ConfigResource.BROKER_LOGGER:
            must_be_this_broker(ctx, name)
            if found := loggers.problems(changes):
                raise KafkaError(ErrorCode.invalid_config, "; ".join(found))
            if not validate_only:
                loggers.apply(changes)
            return
        case ConfigResource.GROUP if changes:
            raise KafkaError(
                ErrorCode.invalid_config,
                "groups have no settings of their own: only the classic protocol is spoken so far",
            )
        case ConfigResource.CLIENT_METRICS if changes:
            raise KafkaError(ErrorCode.invalid_config, "clients' own metrics are not collected yet")
    if ctx.broker.controller is not None or passed_on(ctx):
        await ctx.broker.active_controller().alter_configs(kind, name, changes, validate_only=validate_only)
    else:
        await pass_on(ctx, kind, name, changes, validate_only=validate_only)


def passed_on(ctx: Context) -> bool:
    """Whether another broker asks, for a client of its own."""
    return ctx.peer.software_name == RELAYED_BY


async def pass_on(
    ctx: Context, kind: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """To the controller, one resource by itself: a request may also hold what only this broker can do, such as levels of its loggers."""
    configs = tuple(
        AlterableConfig(name=key, config_operation=i8(Change.DELETE if value is None else Change.SET), value=value)
        for key, value in changes.items()
    )
    resource = AlterConfigsResource(resource_type=i8(kind), resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    response: IncrementalAlterConfigsResponse = await ctx.broker.to_controller.ask(request)
    (result,) = response.responses
    if result.error_code is not ErrorCode.none:
        raise KafkaError(result.error_code, result.error_message)


class Named(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Named)


async def each(resources: Sequence[R], do: Callable[[R], Awaitable[None]]) -> list[tuple[R, ErrorCode, str | None]]:
    """What came of each resource, in the request's order; one that stands twice is refused both times."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: list[tuple[R, ErrorCode, str | None]] = []
    for resource in resources:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "the resource stands twice in the request")
            await do(resource)
        except KafkaError as reason:
            outcomes.append((resource, reason.code, reason.message))
        else:
            outcomes.append((resource, ErrorCode.none, None))
    return outcomes
