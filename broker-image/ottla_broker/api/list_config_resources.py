"""ListConfigResources (74), versions 0–1.

- Lists the resources that DescribeConfigs can describe (KIP-1142). No types requested means all of
  Kafka's: topics, brokers, brokers' loggers, and the groups and client-metrics subscriptions that
  have configs.
- Mirrors (type 101, Ottla's own) are listed if requested: Kafka's tools do not know the type.
  Ottla's other types have no names to list.
- v0 was ListClientMetricsResources and lists only those. An unknown type is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterator
from typing import cast

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource as ListedResource
from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse
from kio.static.primitive import i8

from ottla_broker.requests.api import DESCRIBE_CLUSTER_CONFIGS, Api
from ottla_broker.requests.config_resources import ConfigResource
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0, rights=(DESCRIBE_CLUSTER_CONFIGS,))

ONLY_CLIENT_METRICS = 0
OTTLA_TYPES = {
    ConfigResource.MIRROR,
    ConfigResource.MIRRORED_TOPIC,
    ConfigResource.CREDENTIALS,
    ConfigResource.PIPELINE,
    ConfigResource.ROLL,
}


@API.handler()
async def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        config_resources=tuple(
            ListedResource(resource_name=name, resource_type=cast(i8, int(kind)))
            for kind in requested_types(ctx, request)
            for name in resource_names(ctx, kind)
        ),
    )


def requested_types(ctx: RequestContext, request: ListConfigResourcesRequest) -> list[ConfigResource]:
    if ctx.version == ONLY_CLIENT_METRICS:
        return [ConfigResource.CLIENT_METRICS]
    unknown = set(request.resource_types) - set(ConfigResource)
    if unknown:
        raise KafkaError(ErrorCode.unsupported_version, f"there is no config resource type {min(unknown)}")
    return sorted({ConfigResource(kind) for kind in request.resource_types} or set(ConfigResource) - OTTLA_TYPES)


def resource_names(ctx: RequestContext, listed: ConfigResource) -> Iterator[str]:
    match listed:
        case ConfigResource.TOPIC:
            yield from sorted(ctx.broker.image.topics)
        case ConfigResource.BROKER | ConfigResource.BROKER_LOGGER:
            yield from (str(broker) for broker in sorted(ctx.broker.image.brokers))
        case ConfigResource.MIRROR | ConfigResource.GROUP | ConfigResource.CLIENT_METRICS:
            yield from sorted(name for kind, name in ctx.broker.image.configs if kind == listed)
