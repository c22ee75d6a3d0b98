"""The kinds of resource that have configs, and what must hold before one is described or altered."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

import msgspec

from ottla_broker.config.loggers import find_level_problems, set_levels
from ottla_broker.config.validation import check_broker_changes, check_mirror_changes, check_topic_changes
from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME
from ottla_broker.metadata.image import MIRROR_RESOURCE, MIRRORED_TOPIC_RESOURCE
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.metadata.topic_names import validate_topic_name
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.wire.errors import ErrorCode, KafkaError


class ConfigResource(IntEnum):
    """Kafka's codes (`org.apache.kafka.common.config.ConfigResource.Type`), which are powers of two, and ours: a mirror, and a topic that is its
    copy, of which the brokers tell each other."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
    MIRROR = MIRROR_RESOURCE
    MIRRORED_TOPIC = MIRRORED_TOPIC_RESOURCE


def must_may(ctx: RequestContext, operation: Operation, kind: int, name: str) -> None:
    """TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED; INVALID_REQUEST for a kind that Kafka does not know."""
    match kind:
        case ConfigResource.TOPIC:
            allowed, code = ctx.is_authorized(operation, Resource.topic(name)), ErrorCode.topic_authorization_failed
        case ConfigResource.GROUP:
            allowed, code = ctx.is_authorized(operation, Resource.group(name)), ErrorCode.group_authorization_failed
        case (
            ConfigResource.BROKER | ConfigResource.BROKER_LOGGER | ConfigResource.CLIENT_METRICS | ConfigResource.MIRROR
        ):
            allowed, code = ctx.is_authorized(operation, CLUSTER), ErrorCode.cluster_authorization_failed
        case ConfigResource.MIRRORED_TOPIC if operation is Operation.describe_configs:
            allowed, code = ctx.is_authorized(operation, Resource.topic(name)), ErrorCode.topic_authorization_failed
        case ConfigResource.MIRRORED_TOPIC:
            allowed = ctx.is_authorized(Operation.cluster_action, CLUSTER)
            code = ErrorCode.cluster_authorization_failed
        case _:
            kinds = ", ".join(f"{kind.value} ({kind.name.lower()})" for kind in ConfigResource)
            raise KafkaError(
                ErrorCode.invalid_request, f"resource type {kind} has no configs; those that have: {kinds}"
            )
    if not allowed:
        raise KafkaError(code)


def must_be_topic(ctx: RequestContext, name: str) -> None:
    """INVALID_TOPIC_EXCEPTION or UNKNOWN_TOPIC_OR_PARTITION."""
    validate_topic_name(name)
    if name not in ctx.broker.image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


def must_be_this_broker(ctx: RequestContext, name: str) -> None:
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


def current(ctx: RequestContext, kind: int, name: str) -> Mapping[str, str]:
    """What is set for a resource in the metadata now."""
    return ctx.broker.image.configs.get((kind, name), {})


async def change(
    ctx: RequestContext, kind: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """Checks and commits the changes of one resource, None removing a setting. INVALID_CONFIG and the errors of the checks above. Where this
    broker is not the controller it is only checked here (`each`)."""
    match kind:
        case ConfigResource.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "a topic's name is needed: topics have no common configs")
            # First, as in Kafka: a bad setting is told of whatever topic.
            check_topic_changes(changes, current(ctx, kind, name))
            must_be_topic(ctx, name)
        case ConfigResource.BROKER:
            if name:
                if not is_relayed(ctx):  # else the broker that it concerns has checked it
                    must_be_this_broker(ctx, name)
                name = str(broker_id(name))
            try:
                check_broker_changes(changes, cluster_wide=name == "")
            except KafkaError as reason:  # Kafka's clients know INVALID_CONFIG from topics only
                raise KafkaError(ErrorCode.invalid_request, reason.message) from reason
        case ConfigResource.BROKER_LOGGER:
            must_be_this_broker(ctx, name)
            if found := find_level_problems(changes):
                raise KafkaError(ErrorCode.invalid_config, "; ".join(found))
            if not validate_only:
                set_levels(changes)
            return
        case ConfigResource.MIRROR:
            if not name:
                raise KafkaError(
                    ErrorCode.invalid_request, "a mirror's name is needed: mirrors have no common settings"
                )
            check_mirror_changes(changes, current(ctx, kind, name))
        case ConfigResource.MIRRORED_TOPIC:
            await reported(ctx, name, changes, validate_only=validate_only)
            return
        case ConfigResource.GROUP if changes:
            raise KafkaError(
                ErrorCode.invalid_config,
                "groups have no settings of their own: only the classic protocol is spoken so far",
            )
        case ConfigResource.CLIENT_METRICS if changes:
            raise KafkaError(ErrorCode.invalid_config, "clients' own metrics are not collected yet")
    if ctx.broker.controller is not None:
        await ctx.broker.controller.alter_configs(kind, name, changes, validate_only=validate_only)


async def reported(ctx: RequestContext, name: str, told: Mapping[str, str | None], *, validate_only: bool) -> None:
    """What the leaders of a copy say, by partition; see `metadata.mirror_plans.Report`. NOT_CONTROLLER, INVALID_REQUEST."""
    controller = ctx.broker.active_controller()
    for partition, text in told.items():
        try:
            report = msgspec.json.decode(text or "", type=MirrorReport)
        except msgspec.MsgspecError as reason:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"{partition} of {name!r}: only brokers say this, of the copies that they lead: {reason}",
            ) from reason
        if not validate_only:
            await controller.mirror_control.report_partition(report)


def is_relayed(ctx: RequestContext) -> bool:
    """Whether another broker asks, for a client of its own."""
    return ctx.connection.software_name == FORWARDING_SOFTWARE_NAME


class Named(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


class Answered(Protocol):
    """One resource's part of a response."""

    @property
    def error_code(self) -> ErrorCode: ...
    @property
    def error_message(self) -> str | None: ...


class NamedAnswer(Named, Answered, Protocol):
    pass


R = TypeVar("R", bound=Named)
A = TypeVar("A", bound=NamedAnswer)
Outcome = tuple[ErrorCode, str | None]


async def each(
    ctx: RequestContext,
    resources: Sequence[R],
    do: Callable[[R], Awaitable[None]],
    ask: Callable[[tuple[R, ...]], Awaitable[Sequence[Answered]]],
) -> list[tuple[R, ErrorCode, str | None]]:
    """What came of each resource, in the request's order; one that stands twice is refused both times.

    `do` checks and commits one; `ask` asks the controller for several. What only this broker can do or check (its loggers, its own settings)
    is done and checked here; the rest is the controller's, where another broker has that office.
    """
    here = ctx.broker.controller is not None
    if not here and is_relayed(ctx):
        raise KafkaError(ErrorCode.not_controller)
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: dict[int, Outcome] = {}
    onward: dict[int, R] = {}
    for index, resource in enumerate(resources):
        kind, name = int(resource.resource_type), resource.resource_name
        try:
            if times[resource.resource_type, name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "the resource stands twice in the request")
            if here or kind == ConfigResource.BROKER_LOGGER or (kind == ConfigResource.BROKER and name):
                await do(resource)
            else:
                must_may(ctx, Operation.alter_configs, kind, name)
            if not here and kind != ConfigResource.BROKER_LOGGER:
                onward[index] = resource
            else:
                outcomes[index] = ErrorCode.none, None
        except KafkaError as reason:
            outcomes[index] = reason.code, reason.message
    if onward:
        try:
            answers = await ask(tuple(onward.values()))
            told = [(answer.error_code, answer.error_message) for answer in answers]
        except KafkaError as reason:
            told = [(reason.code, reason.message)] * len(onward)
        outcomes |= dict(zip(onward, told, strict=True))
    return [(resource, *outcomes[index]) for index, resource in enumerate(resources)]


def in_order(resources: Sequence[Named], answers: Sequence[A]) -> list[A]:
    """Another broker's answers, in the order of what it was asked."""
    by_name = {(answer.resource_type, answer.resource_name): answer for answer in answers}
    return [by_name[resource.resource_type, resource.resource_name] for resource in resources]
