"""IncrementalAlterConfigs (44), versions 0–1.

- Changes what it names and nothing else: SET, DELETE (back to the default), APPEND to and SUBTRACT from a list (KIP-339).
- A list that was not set yet is appended to and subtracted from as its default stands; what is there already is not added twice.
- Each resource on its own, checked whole before anything of it is changed; answered when the metadata log has it on disk. Levels of this
  broker's loggers (KIP-412) are set in its memory.
- Removing what is no setting at all changes nothing, as in Kafka: scripts clean up what older versions had.
- A resource or a setting twice in one request is INVALID_REQUEST, as is a missing value.
- v1 is flexible.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from ottla_broker.config import BROKER_SETTINGS, MIRROR_SETTINGS, TOPIC_SETTINGS, Setting
from ottla_broker.config.value_types import ConfigType, split_list
from ottla_broker.requests.api import Api
from ottla_broker.requests.config_resources import ConfigResource, change, current, each, in_order, must_may
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1)

SETTINGS: Mapping[int, Mapping[str, Setting[object]]] = {
    ConfigResource.TOPIC: TOPIC_SETTINGS,
    ConfigResource.BROKER: BROKER_SETTINGS,
    ConfigResource.MIRROR: MIRROR_SETTINGS,
}


class Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@API.handler()
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def ask(resources: tuple[AlterConfigsResource, ...]) -> Sequence[AlterConfigsResourceResponse]:
        onward = IncrementalAlterConfigsRequest(resources=resources, validate_only=request.validate_only)
        return in_order(resources, (await ctx.broker.controller_channel.send_request(onward)).responses)

    outcomes = await each(
        ctx, request.resources, lambda resource: alter(ctx, resource, validate_only=request.validate_only), ask
    )
    return IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, code, message in outcomes
        ),
    )


async def alter(ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    kind, name = int(resource.resource_type), resource.resource_name
    must_may(ctx, Operation.alter_configs, kind, name)
    times = Counter(config.name for config in resource.configs)
    if twice := [key for key in times if times[key] > 1]:
        raise KafkaError(ErrorCode.invalid_request, f"{twice[0]} stands twice in the request")
    changes = {config.name: value(ctx, kind, name, config) for config in resource.configs}
    if (settings := SETTINGS.get(kind)) is not None:
        removable = settings.keys() | current(ctx, kind, name).keys()
        changes = {key: text for key, text in changes.items() if text is not None or key in removable}
    await change(ctx, kind, name, changes, validate_only=validate_only)


def value(ctx: RequestContext, kind: int, name: str, config: AlterableConfig) -> str | None:
    """The setting's text after the change; None when it is removed."""
    operation = int(config.config_operation)
    if operation == Change.DELETE:
        return None
    if config.value is None:
        raise KafkaError(ErrorCode.invalid_request, f"{config.name} has no value")
    match operation:
        case Change.SET:
            return config.value
        case Change.APPEND:
            before = entries(ctx, kind, name, config.name)
            return ",".join([*before, *(entry for entry in split_list(config.value) if entry not in before)])
        case Change.SUBTRACT:
            gone = split_list(config.value)
            return ",".join(entry for entry in entries(ctx, kind, name, config.name) if entry not in gone)
        case _:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name}: operation {operation} is none of 0 to 3")


def entries(ctx: RequestContext, kind: int, name: str, setting_name: str) -> tuple[str, ...]:
    """A list setting's entries as they count now."""
    match kind:
        case ConfigResource.TOPIC:
            setting = TOPIC_SETTINGS.get(setting_name)
        case ConfigResource.BROKER:
            setting = BROKER_SETTINGS.get(setting_name)
        case ConfigResource.MIRROR:
            setting = MIRROR_SETTINGS.get(setting_name)
        case _:
            raise KafkaError(ErrorCode.invalid_request, f"{setting_name} can only be set or deleted")
    if setting is not None and setting.type.code is not ConfigType.LIST:
        raise KafkaError(ErrorCode.invalid_config, f"{setting_name} is no list: it can be set or deleted only")
    text = current(ctx, kind, name).get(setting_name)
    if text is None and setting is not None:
        config = ctx.broker.config
        match kind:
            case ConfigResource.TOPIC:
                counts = config.topic(setting, {})
            case ConfigResource.MIRROR:
                counts = setting.default
            case _:
                counts = config(setting)
        text = setting.type.text(counts)
    return split_list(text or "")
