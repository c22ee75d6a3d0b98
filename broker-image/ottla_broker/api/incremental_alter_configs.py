"""IncrementalAlterConfigs (44), versions 0–1.

- Changes only the configs that it names: SET, DELETE (back to the default), APPEND to and SUBTRACT
  from a list (KIP-339).
- APPEND and SUBTRACT start from the default where a list is not set. An entry that the list has is
  not appended.
- Each resource has its own outcome and is validated whole before anything changes. The response is
  sent when the metadata log has the change on disk. Levels of this broker's loggers (KIP-412) are
  set in memory.
- Deleting an unknown config of a topic, a broker, a mirror or a subscription to clients' metrics
  changes nothing, as in Kafka: scripts remove what older versions had. For other resources it is an
  error.
- A resource or a config named twice is INVALID_REQUEST, and so is a missing value.
- v1 is flexible.
"""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Final

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from ottla_broker.config import BROKER_SETTINGS, CLIENT_METRICS_SETTINGS, MIRROR_SETTINGS, TOPIC_SETTINGS, Setting
from ottla_broker.config.value_types import ConfigType, split_list
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.config_changes import change_configs, change_each_resource
from ottla_broker.requests.config_resources import ConfigResource, check_authorized, current_configs
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    flexible=1,
    rights=(
        Right(Operation.alter_configs, ResourceType.topic, when="for a topic"),
        Right(
            Operation.alter_configs,
            ResourceType.cluster,
            when="for a broker, its loggers, client metrics, a mirror, a pipeline, a roll",
        ),
        Right(Operation.alter_configs, ResourceType.group, when="for a group"),
    ),
)

SETTINGS: Final[Mapping[int, Mapping[str, Setting[object]]]] = {
    ConfigResource.TOPIC: TOPIC_SETTINGS,
    ConfigResource.BROKER: BROKER_SETTINGS,
    ConfigResource.MIRROR: MIRROR_SETTINGS,
    ConfigResource.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}


class ConfigOperation(IntEnum):
    """Codes of Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@API.handler()
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    alter = partial(alter_resource, ctx, validate_only=request.validate_only)
    results = await change_each_resource(ctx, request, check_configs, alter, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=results)


async def alter_resource(ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    kind, name = int(resource.resource_type), resource.resource_name
    check_authorized(ctx, Operation.alter_configs, kind, name)
    changes = {config.name: new_value(ctx, kind, name, config) for config in resource.configs}
    if (settings := SETTINGS.get(kind)) is not None:
        removable = settings.keys() | current_configs(ctx, kind, name).keys()
        changes = {key: text for key, text in changes.items() if text is not None or key in removable}
    await change_configs(ctx, kind, name, changes, validate_only=validate_only)


def check_configs(resource: AlterConfigsResource) -> None:
    """Raises INVALID_REQUEST, also for a client that may not alter the configs, as Kafka does."""
    counts = Counter(config.name for config in resource.configs)
    if repeated := [key for key, count in counts.items() if count > 1]:
        raise KafkaError(ErrorCode.invalid_request, f"the request names {repeated[0]} twice")
    for config in resource.configs:
        if config.value is None and int(config.config_operation) != ConfigOperation.DELETE:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name} has no value")


def new_value(ctx: RequestContext, kind: int, name: str, config: AlterableConfig) -> str | None:
    """The config's text after the change; None removes it."""
    operation = int(config.config_operation)
    if operation == ConfigOperation.DELETE:
        return None
    assert config.value is not None, "check_configs has rejected it"
    match operation:
        case ConfigOperation.SET:
            return config.value
        case ConfigOperation.APPEND:
            entries = current_entries(ctx, kind, name, config.name)
            return ",".join(dict.fromkeys([*entries, *split_list(config.value)]))
        case ConfigOperation.SUBTRACT:
            removed = split_list(config.value)
            return ",".join(entry for entry in current_entries(ctx, kind, name, config.name) if entry not in removed)
        case _:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name}: operation {operation} is none of 0 to 3")


def current_entries(ctx: RequestContext, kind: int, name: str, config_name: str) -> tuple[str, ...]:
    """The entries of a list config in effect."""
    if kind not in SETTINGS:
        raise KafkaError(ErrorCode.invalid_request, f"{config_name} can only be set or deleted")
    setting = SETTINGS[kind].get(config_name)
    if setting is not None and setting.type.code is not ConfigType.LIST:
        raise KafkaError(ErrorCode.invalid_config, f"{config_name} is not a list: it can only be set or deleted")
    text = current_configs(ctx, kind, name).get(config_name)
    if text is None and setting is not None:
        text = setting.type.text(default_value(ctx, kind, setting))
    return split_list(text or "")


def default_value(ctx: RequestContext, kind: int, setting: Setting[object]) -> object:
    """The value from which APPEND and SUBTRACT start where the resource has none of its own. For a
    broker: the value in effect on the broker that runs this, whichever broker the resource names.
    """
    match kind:
        case ConfigResource.TOPIC:
            return ctx.broker.config.topic_value(setting, {})
        case ConfigResource.BROKER:
            return ctx.broker.config(setting)
        case _:
            return setting.default
