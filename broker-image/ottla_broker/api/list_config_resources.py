"""ListConfigResources (74), versions 0–1.

- Names what can be described by DescribeConfigs: topics, brokers, brokers' loggers (KIP-1142). No types named means all of them.
- Mirrors (type 101, ours) are named when they are asked for: Kafka's tools would not know what they are.
- Groups and client metrics are known types without members here: nothing can be set for them yet.
- v0 was called ListClientMetricsResources and knows only those: its answer is empty. A type that is not known is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterator
from typing import cast

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource as Listed
from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse
from kio.static.primitive import i8

from ottla_broker.requests.api import Api
from ottla_broker.requests.config_resources import ConfigResource
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0)

ONLY_CLIENT_METRICS = 0
OURS = {ConfigResource.MIRROR, ConfigResource.MIRRORED_TOPIC}


@API.handler()
async def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if not ctx.is_authorized(Operation.describe_configs, CLUSTER):
        raise KafkaError(ErrorCode.cluster_authorization_failed)
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        config_resources=tuple(
            Listed(resource_name=name, resource_type=cast(i8, int(kind)))
            for kind in kinds(ctx, request)
            for name in names(ctx, kind)
        ),
    )


def kinds(ctx: RequestContext, request: ListConfigResourcesRequest) -> list[ConfigResource]:
    if ctx.version == ONLY_CLIENT_METRICS:
        return [ConfigResource.CLIENT_METRICS]
    unknown = set(request.resource_types) - set(ConfigResource)
    if unknown:
        raise KafkaError(ErrorCode.unsupported_version, f"there is no config resource type {min(unknown)}")
    return sorted({ConfigResource(kind) for kind in request.resource_types} or set(ConfigResource) - OURS)


def names(ctx: RequestContext, listed: ConfigResource) -> Iterator[str]:
    match listed:
        case ConfigResource.TOPIC:
            yield from sorted(ctx.broker.image.topics)
        case ConfigResource.BROKER | ConfigResource.BROKER_LOGGER:
            yield from (str(broker) for broker in sorted(ctx.broker.image.brokers))
        case ConfigResource.MIRROR:
            yield from sorted(name for kind, name in ctx.broker.image.configs if kind == ConfigResource.MIRROR)
