"""How AlterConfigs and IncrementalAlterConfigs change the configs of resources.

The controller validates and commits. What only this broker can validate or change, its own settings and its loggers, it
handles itself before it forwards the rest to the controller.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from ottla_broker.config.loggers import find_level_problems, set_levels
from ottla_broker.config.validation import check_broker_changes, check_mirror_changes, check_topic_changes
from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.requests.config_resources import (
    ConfigResource,
    check_authorized,
    check_is_this_broker,
    check_topic_exists,
    current_configs,
    parse_broker_id,
)
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import Operation
from ottla_broker.wire.errors import ErrorCode, KafkaError


class NamedResource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


class ResourceResult(NamedResource, Protocol):
    """One resource's part of a response."""

    @property
    def error_code(self) -> ErrorCode: ...
    @property
    def error_message(self) -> str | None: ...


R = TypeVar("R", bound=NamedResource)
Outcome = tuple[ErrorCode, str | None]


async def change_configs(
    ctx: RequestContext, kind: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """Validate the changes of one resource and, on the controller, commit them. None removes a config.

    Raises INVALID_CONFIG and the errors of `config_resources`.
    """
    match kind:
        case ConfigResource.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "a topic name is required: topics have no common configs")
            check_topic_changes(changes, current_configs(ctx, kind, name))  # before the name, as in Kafka
            check_topic_exists(ctx, name)
        case ConfigResource.BROKER:
            if name:
                if not _is_forwarded(ctx):  # otherwise the broker that it names has checked it
                    check_is_this_broker(ctx, name)
                name = str(parse_broker_id(name))
            try:
                check_broker_changes(changes, cluster_wide=name == "")
            except KafkaError as error:  # Kafka returns INVALID_CONFIG for topics only
                raise KafkaError(ErrorCode.invalid_request, error.message) from error
        case ConfigResource.BROKER_LOGGER:
            check_is_this_broker(ctx, name)
            if problems := find_level_problems(changes):
                raise KafkaError(ErrorCode.invalid_config, "; ".join(problems))
            if not validate_only:
                set_levels(changes)
            return
        case ConfigResource.MIRROR:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "a mirror name is required: mirrors have no common configs")
            check_mirror_changes(changes, current_configs(ctx, kind, name))
        case ConfigResource.MIRRORED_TOPIC:
            await _report_partitions(ctx, name, changes, validate_only=validate_only)
            return
        case ConfigResource.GROUP if changes:
            raise KafkaError(
                ErrorCode.invalid_config, "groups have no configs: only the classic group protocol is implemented"
            )
        case ConfigResource.CLIENT_METRICS if changes:
            raise KafkaError(ErrorCode.invalid_config, "clients' own metrics are not collected")
    if ctx.broker.controller is not None:
        await ctx.broker.controller.alter_configs(kind, name, changes, validate_only=validate_only)


async def change_each_resource(
    ctx: RequestContext,
    resources: Sequence[R],
    change: Callable[[R], Awaitable[None]],
    forward: Callable[[tuple[R, ...]], Awaitable[Sequence[ResourceResult]]],
) -> list[tuple[R, ErrorCode, str | None]]:
    """The outcome of each resource, in the request's order. A resource named twice is rejected both times.

    `change` validates and commits one resource; `forward` sends several to the controller.
    """
    is_controller = ctx.broker.controller is not None
    if not is_controller and _is_forwarded(ctx):
        raise KafkaError(ErrorCode.not_controller)
    counts = Counter(map(_key, resources))
    outcomes: dict[int, Outcome] = {}
    for_controller: dict[int, R] = {}
    for index, resource in enumerate(resources):
        kind, name = _key(resource)
        try:
            if counts[kind, name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "the request names the resource twice")
            if is_controller or kind == ConfigResource.BROKER_LOGGER or (kind == ConfigResource.BROKER and name):
                await change(resource)
            else:
                check_authorized(ctx, Operation.alter_configs, kind, name)
            if is_controller or kind == ConfigResource.BROKER_LOGGER:
                outcomes[index] = ErrorCode.none, None
            else:
                for_controller[index] = resource
        except KafkaError as error:
            outcomes[index] = error.code, error.message
    if for_controller:
        forwarded = await _forward(tuple(for_controller.values()), forward)
        outcomes |= dict(zip(for_controller, forwarded, strict=True))
    return [(resource, *outcomes[index]) for index, resource in enumerate(resources)]


async def _forward(
    resources: tuple[R, ...], forward: Callable[[tuple[R, ...]], Awaitable[Sequence[ResourceResult]]]
) -> list[Outcome]:
    """The controller's outcomes, in the order of `resources`."""
    try:
        results = {_key(result): result for result in await forward(resources)}
    except KafkaError as error:
        return [(error.code, error.message)] * len(resources)
    return [(results[_key(one)].error_code, results[_key(one)].error_message) for one in resources]


async def _report_partitions(
    ctx: RequestContext, topic: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """A leader reports the status of mirrored partitions, as MirrorReport in JSON by partition.

    Raises NOT_CONTROLLER and INVALID_REQUEST.
    """
    controller = ctx.broker.active_controller()
    for partition, text in changes.items():
        try:
            report = msgspec.json.decode(text or "", type=MirrorReport)
        except msgspec.MsgspecError as error:
            raise KafkaError(
                ErrorCode.invalid_request, f"{partition} of {topic!r} is no report of its leader: {error}"
            ) from error
        if not validate_only:
            await controller.mirror_control.report_partition(report)


def _key(resource: NamedResource) -> tuple[int, str]:
    return int(resource.resource_type), resource.resource_name


def _is_forwarded(ctx: RequestContext) -> bool:
    """Whether another broker sent the request, for a client of its own."""
    return ctx.connection.software_name == FORWARDING_SOFTWARE_NAME
