"""A broker without sockets and with a topic, for tests of APIs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResult
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.api.describe_configs import describe_configs
from ottla_broker.api.incremental_alter_configs import incremental_alter_configs
from ottla_broker.broker import Broker
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.requests.audited_changes import AUDITED
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from tests.unit.broker_without_sockets import run_broker
from tests.unit.topic_creation import ensure_topic


@asynccontextmanager
async def broker_with_topic(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A started broker with the topic `t` of two partitions. `settings`: with underscores for
    dots.
    """
    async with run_broker(folder / "data", disk=None, broker_rack="r1", **settings) as broker:
        await ensure_topic(broker.active_controller(), NewTopic("t", 2, 1, config={"retention.ms": "5"}))
        yield broker


def context(broker: Broker, version: int, authorizer: Authorizer | None = None) -> RequestContext:
    return RequestContext(
        broker, ConnectionState("127.0.0.1", 1, "PLAINTEXT"), version, "a test", authorizer or AllowAll()
    )


async def alter_report(
    ctx: RequestContext, kind: int, name: str, text: str | None, key: str = "report"
) -> tuple[ErrorCode, str | None]:
    """Sends a report, or removes it (None). Returns the error code and message."""
    config = AlterableConfig(name=key, config_operation=i8(1 if text is None else 0), value=text)
    resource = AlterConfigsResource(resource_type=i8(kind), resource_name=name, configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    response = await incremental_alter_configs(ctx, request)
    assert list(AUDITED[ApiKey.INCREMENTAL_ALTER_CONFIGS](request, response)) == [], "reports are no changes"
    return response.responses[0].error_code, response.responses[0].error_message


async def describe_reports(ctx: RequestContext, kind: int, name: str = "") -> DescribeConfigsResult:
    """Describes the report of this name, or all (empty)."""
    resource = DescribeConfigsResource(resource_type=i8(kind), resource_name=name, configuration_keys=None)
    (result,) = (await describe_configs(ctx, DescribeConfigsRequest(resources=(resource,)))).results
    return result
