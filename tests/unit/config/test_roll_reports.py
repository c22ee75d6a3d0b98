"""Reports of a rolling restart: sent to the controller as a config of type 105, and kept in its
memory.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla_broker.api.describe_configs import describe_configs
from ottla_broker.api.incremental_alter_configs import incremental_alter_configs
from ottla_broker.broker import Broker
from ottla_broker.requests.audited_changes import AUDITED
from ottla_broker.requests.context import RequestContext
from ottla_broker.telemetry.pipeline_reports import KEPT_MS
from ottla_broker.telemetry.roll_reports import RollReports, parse_roll
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import MAX_REPORT_BYTES
from ottla_broker.wire.roll_report import ROLL_RESOURCE, RollBlocker, RollReport, StoredRoll, read_roll
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll
from tests.unit.config.api_broker import broker_with_topic, context

REPORT = RollReport((1, 3), "settings num.partitions", (2,), (RollBlocker(1, "t", 0, (1,), 1),))
TEXT = msgspec.json.encode(REPORT).decode()


def test_last_report_counts_until_it_is_old() -> None:
    reports = RollReports()
    assert reports.current(0) is None
    reports.replace(REPORT, 2000)
    assert reports.current(3500) == StoredRoll(1.5, REPORT)
    assert reports.current(2001 + KEPT_MS) is None
    reports.replace(None, 4000)
    assert reports.current(4000) is None


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("demo", TEXT, "a cluster has one roll, which has no name such as 'demo'"),
        ("", '{"pending": ["x"]}', "not a report of a roll: Expected `int`, got `str`"),
        ("", " " * (MAX_REPORT_BYTES + 1), "a report has at most 65536 bytes"),
    ],
)
def test_invalid_reports_are_refused(name: str, text: str, problem: str) -> None:
    with pytest.raises(KafkaError) as refused:
        parse_roll(name, text)
    assert refused.value.code is ErrorCode.invalid_request and problem in str(refused.value)


async def alter(ctx: RequestContext, text: str | None) -> ErrorCode:
    config = AlterableConfig(name="report", config_operation=i8(1 if text is None else 0), value=text)
    resource = AlterConfigsResource(resource_type=i8(ROLL_RESOURCE), resource_name="", configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    response = await incremental_alter_configs(ctx, request)
    assert list(AUDITED[ApiKey.INCREMENTAL_ALTER_CONFIGS](request, response)) == [], "reports are no changes"
    code: ErrorCode = response.responses[0].error_code
    return code


async def describe(broker: Broker, authorizer: Any = None) -> Any:
    resource = DescribeConfigsResource(resource_type=i8(ROLL_RESOURCE), resource_name="", configuration_keys=None)
    ctx = context(broker, 4, authorizer) if authorizer else context(broker, 4)
    (result,) = (await describe_configs(ctx, DescribeConfigsRequest(resources=(resource,)))).results
    return result


@async_test
async def test_report_is_described_to_those_who_may_describe_the_cluster_s_configs(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        configs = broker.image.configs.copy()
        assert await alter(context(broker, 1, DenyAll()), TEXT) is ErrorCode.cluster_authorization_failed
        assert read_roll((await describe(broker)).configs) is None
        assert await alter(context(broker, 1), TEXT) is ErrorCode.none
        found = read_roll((await describe(broker)).configs)
        assert found is not None and found.report == REPORT
        denied = await describe(broker, DenyAll())
        assert (denied.error_code, list(denied.configs)) == (ErrorCode.cluster_authorization_failed, [])
        assert broker.image.configs == configs, "nothing is in the metadata log"
        assert await alter(context(broker, 1), None) is ErrorCode.none
        assert read_roll((await describe(broker)).configs) is None
