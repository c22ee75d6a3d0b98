"""DescribeConfigs (32), versions 1–4.

- Topics, this broker, the defaults of all brokers (resource broker with the empty name) and the levels of this broker's loggers.
- Each setting tells where its value comes from and, when asked, every other place it is found in, in the order in which they count.
- Another broker's settings are only known to that broker: naming it here is INVALID_REQUEST, as in Kafka.
- Groups and client metrics have no settings here: an empty list, as for a resource for which nothing was set.
- A mirror (type 101) has its settings, and the controller tells what is in its way; a topic that is a copy (102) tells how it is, each broker of the partitions that it leads.
- No keys named means all. v3 adds types and documentation; v4 is flexible.
"""

import asyncio
from collections.abc import Iterable
from typing import cast

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.static.primitive import i8

from ottla_broker.config import ConfigEntry
from ottla_broker.config.description import describe_broker, describe_cluster_defaults, describe_mirror, describe_topic
from ottla_broker.config.loggers import describe_loggers
from ottla_broker.requests import appended_status, mirror_status
from ottla_broker.requests.api import Api
from ottla_broker.requests.config_resources import ConfigResource, current, must_be_this_broker, must_be_topic, must_may
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4)


@API.handler()
async def describe_configs(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(describe(ctx, resource, request) for resource in request.resources),
    )


def describe(
    ctx: RequestContext, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    configs: Iterable[ConfigEntry] = ()
    code, message = ErrorCode.none, None
    try:
        configs = entries(ctx, resource.resource_type, resource.resource_name)
    except KafkaError as reason:
        code, message = reason.code, reason.message
    keys = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(result(entry, request) for entry in configs if not keys or entry.name in keys),
    )


def entries(ctx: RequestContext, kind: int, name: str) -> list[ConfigEntry]:
    must_may(ctx, Operation.describe_configs, kind, name)
    config = ctx.broker.config
    match kind:
        case ConfigResource.TOPIC:
            must_be_topic(ctx, name)
            return describe_topic(config, ctx.broker.image.topic_config(name))
        case ConfigResource.BROKER if name == "":
            return describe_cluster_defaults(config)
        case ConfigResource.BROKER:
            must_be_this_broker(ctx, name)
            return describe_broker(config)
        case ConfigResource.BROKER_LOGGER:
            must_be_this_broker(ctx, name)
            return describe_loggers()
        case ConfigResource.MIRROR:
            settings = current(ctx, kind, name)
            return describe_mirror(settings) + mirror_status.troubles(ctx.broker, name) if settings else []
        case ConfigResource.MIRRORED_TOPIC:
            now_s = asyncio.get_running_loop().time()
            return mirror_status.mirrored_topic_entries(
                ctx.broker, name, now_s
            ) + appended_status.appended_topic_entries(ctx.broker, name, now_s)
        case ConfigResource.GROUP if name == "":
            raise KafkaError(ErrorCode.invalid_request, "a group's name is needed")
        case _:
            return []


def result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=cast(i8, int(entry.source)),
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=cast(i8, int(synonym.source)))
            for synonym in entry.synonyms
        )
        if request.include_synonyms
        else (),
        config_type=cast(i8, int(entry.type)),
        documentation=entry.doc if request.include_documentation else None,
    )
