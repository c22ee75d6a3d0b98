"""AlterConfigs and IncrementalAlterConfigs change the configs of resources.

The controller validates and commits. A broker that is not the controller sends the changes to it.
Before that, it validates changes of its own settings. It alone sets the levels of its loggers.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import msgspec

from ottla_broker.config.certificate_changes import find_certificate_problems
from ottla_broker.config.loggers import find_level_problems, set_levels
from ottla_broker.config.validation import (
    check_broker_changes,
    check_client_metrics_changes,
    check_group_changes,
    check_mirror_changes,
    check_topic_changes,
)
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
from ottla_broker.telemetry.pipeline_reports import parse_report
from ottla_broker.telemetry.roll_reports import parse_roll
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import REPORT


class NamedResource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=NamedResource)
S = TypeVar("S")


async def change_configs(
    ctx: RequestContext, kind: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """Validates the changes of one resource and, on the controller, commits them. None removes a
    config. Levels of loggers are set at once, and reports are kept in memory.

    Raises INVALID_CONFIG, NOT_CONTROLLER and the errors of `config_resources`.
    """
    match kind:
        case ConfigResource.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "a topic name is required: topics have no common configs")
            check_topic_changes(changes, current_configs(ctx, kind, name))  # before the name, as in Kafka
            check_topic_exists(ctx, name)
        case ConfigResource.BROKER:
            is_checked = _is_forwarded(ctx)  # by the broker that it names
            if name:
                if not is_checked:
                    check_is_this_broker(ctx, name)
                name = str(parse_broker_id(name))
            try:
                check_broker_changes(changes, cluster_wide=name == "")
            except KafkaError as error:  # Kafka returns INVALID_CONFIG for topics only
                raise KafkaError(ErrorCode.invalid_request, error.message) from error
            if name and not is_checked:
                await _check_certificates(ctx, changes)
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
        case ConfigResource.PIPELINE:
            _report_pipeline(ctx, name, changes, validate_only=validate_only)
            return
        case ConfigResource.ROLL:
            _report_roll(ctx, name, changes, validate_only=validate_only)
            return
        case ConfigResource.GROUP:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "a group name is required: groups have no common configs")
            check_group_changes(ctx.broker.config, changes)
        case ConfigResource.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "a name is required: subscriptions have no common configs")
            check_client_metrics_changes(changes)
    if ctx.broker.controller is not None:
        await ctx.broker.controller.alter_configs(kind, name, changes, validate_only=validate_only)


async def change_each_resource(
    ctx: RequestContext,
    request: Any,
    check_form: Callable[[R], None],
    change: Callable[[R], Awaitable[None]],
    result: Callable[..., S],
) -> tuple[S, ...]:
    """The result of each resource of an AlterConfigs or IncrementalAlterConfigs request, in its
    order.

    A resource named twice is rejected both times. A resource that `check_form` rejects gets that
    error even if the client may not alter it. On the controller, `change` validates and commits
    one resource. On another broker it validates the settings and sets the loggers of a named
    broker; all resources but loggers are then sent to the controller together. `result` is the
    class of the response's resources. Raises NOT_CONTROLLER for a request that another broker has
    forwarded to a broker that is not the controller.
    """
    counts = Counter(map(_key, request.resources))
    is_controller = ctx.broker.controller is not None
    if not is_controller and _is_forwarded(ctx):
        raise KafkaError(ErrorCode.not_controller)
    errors: dict[tuple[int, str], KafkaError] = {}
    for_controller: list[R] = []
    for resource in request.resources:
        kind, name = key = _key(resource)
        try:
            if counts[key] > 1:
                raise KafkaError(ErrorCode.invalid_request, "the request names the resource twice")
            check_form(resource)
            if is_controller or kind == ConfigResource.BROKER_LOGGER or (kind == ConfigResource.BROKER and name):
                await change(resource)
            else:
                check_authorized(ctx, Operation.alter_configs, kind, name)
            if not (is_controller or kind == ConfigResource.BROKER_LOGGER):
                for_controller.append(resource)
        except KafkaError as error:
            errors[key] = error
    if for_controller:
        try:
            forwarded = replace(request, resources=tuple(for_controller))
            response = await ctx.broker.controller_channel.send_request(forwarded)
            errors |= {_key(one): KafkaError(one.error_code, one.error_message) for one in response.responses}
        except KafkaError as error:
            errors |= {_key(resource): error for resource in for_controller}
    return tuple(
        result(error_code=error.code, error_message=error.message, resource_type=kind, resource_name=name)
        for kind, name in map(_key, request.resources)
        for error in (errors.get((kind, name), NO_ERROR),)
    )


async def _report_partitions(
    ctx: RequestContext, topic: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """Records the status of mirrored partitions that a leader reports, as MirrorReport in JSON by
    partition.

    Raises NOT_CONTROLLER and INVALID_REQUEST.
    """
    controller = ctx.broker.active_controller()
    for partition, text in changes.items():
        try:
            report = msgspec.json.decode(text or "", type=MirrorReport)
        except msgspec.MsgspecError as error:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"{partition} of {topic!r} is not a report of the leader of a mirrored partition: {error}",
            ) from error
        if not validate_only:
            await controller.mirror_control.report_partition(report)


def _report_pipeline(ctx: RequestContext, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Keeps a pipeline's report in memory, or forgets it. Raises NOT_CONTROLLER and
    INVALID_REQUEST.
    """
    text = _report_text(ctx, "a pipeline", changes)
    report = None if text is None else parse_report(name, text)
    if validate_only:
        return
    if report is None:
        ctx.broker.pipeline_reports.remove(name)
    else:
        ctx.broker.pipeline_reports.add(name, report, ctx.broker.runtime.now_ms())


def _report_roll(ctx: RequestContext, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Keeps the report of a rolling restart in memory, or forgets it. Raises NOT_CONTROLLER and
    INVALID_REQUEST.
    """
    text = _report_text(ctx, "a roll", changes)
    report = None if text is None else parse_roll(name, text)
    if not validate_only:
        ctx.broker.roll_reports.replace(report, ctx.broker.runtime.now_ms())


def _report_text(ctx: RequestContext, kind: str, changes: Mapping[str, str | None]) -> str | None:
    """The text of a report; None: it is removed. Raises NOT_CONTROLLER and INVALID_REQUEST."""
    ctx.broker.active_controller()
    if unknown := sorted(changes.keys() - {REPORT}):
        raise KafkaError(ErrorCode.invalid_request, f"{kind} has one config, {REPORT}, not {unknown[0]}")
    return changes.get(REPORT)


async def _check_certificates(ctx: RequestContext, changes: Mapping[str, str | None]) -> None:
    """Raises INVALID_REQUEST if this broker's listeners could not use changed certificates."""
    runtime, config = ctx.broker.runtime, ctx.broker.config
    problems = await runtime.run_in_thread(
        lambda: list(find_certificate_problems(config, changes, runtime.now_ms() / 1000))
    )
    if problems:
        raise KafkaError(ErrorCode.invalid_request, "; ".join(problems))


def _key(resource: NamedResource) -> tuple[int, str]:
    return int(resource.resource_type), resource.resource_name


def _is_forwarded(ctx: RequestContext) -> bool:
    """True if another broker has forwarded the request for a client."""
    return ctx.connection.software_name == FORWARDING_SOFTWARE_NAME
