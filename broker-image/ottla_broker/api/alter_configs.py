"""AlterConfigs (33), versions 0–2.

- Replaces all that was set for a resource by what the request says; what it does not name falls back to its default. Tools of today use
  IncrementalAlterConfigs instead, which changes only what it names.
- Each resource on its own, checked whole before anything of it is changed; answered when the metadata log has it on disk.
- A resource twice in one request is INVALID_REQUEST for both; so is a setting without value. Loggers are not altered by this API.
- v2 is flexible.
"""

from collections.abc import Sequence

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from ottla_broker.requests.api import Api
from ottla_broker.requests.config_resources import ConfigResource, change, current, each, in_order, must_may
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2)


@API.handler()
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def ask(resources: tuple[AlterConfigsResource, ...]) -> Sequence[AlterConfigsResourceResponse]:
        onward = AlterConfigsRequest(resources=resources, validate_only=request.validate_only)
        return in_order(resources, (await ctx.broker.controller_channel.send_request(onward)).responses)

    outcomes = await each(
        ctx, request.resources, lambda resource: replace(ctx, resource, validate_only=request.validate_only), ask
    )
    return AlterConfigsResponse(
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


async def replace(ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    kind, name = int(resource.resource_type), resource.resource_name
    must_may(ctx, Operation.alter_configs, kind, name)
    if kind == ConfigResource.BROKER_LOGGER:
        raise KafkaError(ErrorCode.invalid_request, "levels of loggers are altered by IncrementalAlterConfigs only")
    wanted: dict[str, str | None] = {}
    for config in resource.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name} has no value; leave it out to have its default")
        if config.name in wanted:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name} stands twice in the request")
        wanted[config.name] = config.value
    dropped = dict.fromkeys(current(ctx, kind, name).keys() - wanted.keys())
    await change(ctx, kind, name, {**dropped, **wanted}, validate_only=validate_only)
