"""AlterConfigs (33), versions 0–2.

- Replaces all configs of a resource; a config that the request does not name returns to its
  default. Current tools use IncrementalAlterConfigs instead, which changes only what it names.
- Each resource has its own outcome and is validated whole before anything changes. The response is
  sent when the metadata log has the change on disk.
- A resource named twice is INVALID_REQUEST both times. So is a resource with a config that is named
  twice or has no value. Levels of loggers are not altered by this API.
- v2 is flexible.
"""

from functools import partial

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.config_changes import change_configs, change_each_resource
from ottla_broker.requests.config_resources import ConfigResource, check_authorized, current_configs
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.ALTER_CONFIGS,
    versions=(0, 2),
    flexible=2,
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


@API.handler()
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    replace = partial(replace_configs, ctx, validate_only=request.validate_only)
    results = await change_each_resource(ctx, request, check_configs, replace, AlterConfigsResourceResponse)
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=results)


async def replace_configs(ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    kind, name = int(resource.resource_type), resource.resource_name
    check_authorized(ctx, Operation.alter_configs, kind, name)
    configs = {config.name: config.value for config in resource.configs}
    removed = dict.fromkeys(current_configs(ctx, kind, name).keys() - configs.keys())
    await change_configs(ctx, kind, name, {**removed, **configs}, validate_only=validate_only)


def check_configs(resource: AlterConfigsResource) -> None:
    """Raises INVALID_REQUEST, also for a client that may not alter the configs, as Kafka does."""
    if int(resource.resource_type) == ConfigResource.BROKER_LOGGER:
        raise KafkaError(ErrorCode.invalid_request, "levels of loggers are altered by IncrementalAlterConfigs only")
    names = set()
    for config in resource.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name} has no value; omit it to get its default")
        if config.name in names:
            raise KafkaError(ErrorCode.invalid_request, f"the request names {config.name} twice")
        names.add(config.name)
