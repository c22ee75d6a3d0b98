"""DescribeConfigs (32), versions 1–4.

- Describes topics, this broker, the cluster-wide defaults of all brokers (resource broker with the
  empty name) and the levels of this broker's loggers.
- Each config has the source of its value and, if requested, the other values in order of
  precedence.
- Configs of another broker are INVALID_REQUEST, as in Kafka: only that broker knows them.
- A group has its settings of the newer protocols, a client-metrics resource the settings of its
  subscription (KIP-714), both with their defaults if they have none.
- A mirror (type 101) has its configs and, on the controller, its problems. A mirrored topic (type
  102) has the status of those partitions that this broker leads. A user (type 103) has its SCRAM
  credentials in the text form of Kafka's tools, for mirrors. The report of a pipeline (type 104),
  or those of all for the empty name, and the report of a rolling restart (type 105) are in the
  memory of the active controller.
- If the request names no configs, it gets all. v3 adds types and documentation; v4 is flexible.
"""

import asyncio
from collections.abc import Iterable
from typing import cast

import msgspec
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.static.primitive import i8

from ottla_broker.config import ConfigEntry, ConfigSource
from ottla_broker.config.description import (
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_mirror,
    describe_topic,
)
from ottla_broker.config.loggers import describe_loggers
from ottla_broker.config.value_types import ConfigType
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.config_resources import (
    ConfigResource,
    check_authorized,
    check_is_this_broker,
    check_topic_exists,
    current_configs,
)
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.security.scram import ScramMechanism, format_credential
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import REPORT, StoredReport
from ottla_broker.wire.roll_report import StoredRoll

API = Api(
    ApiKey.DESCRIBE_CONFIGS,
    versions=(1, 4),
    flexible=4,
    rights=(
        Right(Operation.describe_configs, ResourceType.topic, when="for a topic"),
        Right(
            Operation.describe_configs,
            ResourceType.cluster,
            when="for a broker, its loggers, client metrics, a mirror, a pipeline, a roll",
        ),
        Right(Operation.describe_configs, ResourceType.group, when="for a group"),
        Right(Operation.describe_tokens, ResourceType.user, when="for a user's SCRAM credentials"),
    ),
)


@API.handler()
async def describe_configs(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(describe_resource(ctx, resource, request) for resource in request.resources),
    )


def describe_resource(
    ctx: RequestContext, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    configs: Iterable[ConfigEntry] = ()
    code, message = ErrorCode.none, None
    try:
        configs = find_entries(ctx, resource.resource_type, resource.resource_name)
    except KafkaError as reason:
        code, message = reason.code, reason.message
    keys = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(build_config_result(entry, request) for entry in configs if not keys or entry.name in keys),
    )


def find_entries(ctx: RequestContext, kind: int, name: str) -> list[ConfigEntry]:
    """The configs of a resource that exists and that the client may describe. Raises the errors of
    `config_resources`.
    """
    check_authorized(ctx, Operation.describe_configs, kind, name)
    config = ctx.broker.config
    match kind:
        case ConfigResource.TOPIC:
            check_topic_exists(ctx, name)
            return describe_topic(config, ctx.broker.image.topic_config(name))
        case ConfigResource.BROKER if name == "":
            return describe_cluster_defaults(config)
        case ConfigResource.BROKER:
            check_is_this_broker(ctx, name)
            return describe_broker(config)
        case ConfigResource.BROKER_LOGGER:
            check_is_this_broker(ctx, name)
            return describe_loggers()
        case ConfigResource.MIRROR:
            from ottla_broker.requests.mirror_status import describe_mirror_problems  # imports all of mirroring

            settings = current_configs(ctx, kind, name)
            return describe_mirror(settings) + describe_mirror_problems(ctx.broker, name) if settings else []
        case ConfigResource.MIRRORED_TOPIC:
            from ottla_broker.requests.mirror_status import describe_mirrored_topic_status

            return describe_mirrored_topic_status(ctx.broker, name, asyncio.get_running_loop().time())
        case ConfigResource.PIPELINE:
            return describe_pipelines(ctx, name)
        case ConfigResource.ROLL:
            return describe_roll(ctx)
        case ConfigResource.CREDENTIALS:
            return describe_credentials(ctx, name)
        case ConfigResource.GROUP if name == "":
            raise KafkaError(ErrorCode.invalid_request, "a group name is required")
        case ConfigResource.GROUP:
            return describe_group(config, current_configs(ctx, kind, name))
        case ConfigResource.CLIENT_METRICS if name == "":
            raise KafkaError(ErrorCode.invalid_request, "a name is required")
        case ConfigResource.CLIENT_METRICS:
            return describe_client_metrics(current_configs(ctx, kind, name))
        case _:
            return []


def describe_pipelines(ctx: RequestContext, name: str) -> list[ConfigEntry]:
    """The report of a pipeline, or of all if the name is empty, by the pipeline's name. Empty on
    brokers that are not the controller.
    """
    if ctx.broker.controller is None:
        return []
    reports = ctx.broker.pipeline_reports.current(ctx.broker.runtime.now_ms())
    return [
        describe_report(pipeline, stored, ConfigSource.PIPELINE_REPORT)
        for pipeline, stored in reports.items()
        if name in ("", pipeline)
    ]


def describe_roll(ctx: RequestContext) -> list[ConfigEntry]:
    """The report of the rolling restart in progress. Empty if there is none, and on brokers that
    are not the controller.
    """
    if ctx.broker.controller is None:
        return []
    stored = ctx.broker.roll_reports.current(ctx.broker.runtime.now_ms())
    return [] if stored is None else [describe_report(REPORT, stored, ConfigSource.ROLL_REPORT)]


def describe_report(name: str, stored: StoredReport | StoredRoll, source: ConfigSource) -> ConfigEntry:
    return ConfigEntry(name, msgspec.json.encode(stored).decode(), source, (), True, False, ConfigType.STRING, "")


def describe_credentials(ctx: RequestContext, user: str) -> list[ConfigEntry]:
    """The SCRAM credentials of a user, one entry for each mechanism; empty for an unknown user."""
    return [
        ConfigEntry(
            mechanism.title,
            format_credential(credential),
            ConfigSource.DYNAMIC_MIRROR_CONFIG,
            (),
            True,
            True,
            ConfigType.PASSWORD,
            "",
        )
        for mechanism in ScramMechanism
        if (credential := ctx.broker.image.scram_credentials.get((user, mechanism))) is not None
    ]


def build_config_result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
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
