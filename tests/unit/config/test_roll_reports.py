"""Reports of a rolling restart: sent to the controller as a config of type 105, and kept in its
memory.
"""

from pathlib import Path

import msgspec
import pytest

from ottla_broker.requests.context import RequestContext
from ottla_broker.telemetry.pipeline_reports import REPORT_EXPIRY_MS
from ottla_broker.telemetry.roll_reports import RollReports, parse_roll
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import MAX_REPORT_BYTES
from ottla_broker.wire.roll_report import ROLL_RESOURCE, RollBlocker, RollReport, StoredRoll, read_roll
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll
from tests.unit.config.api_broker import alter_report, broker_with_topic, context, describe_reports

REPORT = RollReport((1, 3), "settings num.partitions", (2,), (RollBlocker(1, "t", 0, (1,), 1),))
TEXT = msgspec.json.encode(REPORT).decode()


def test_last_report_counts_until_it_is_old() -> None:
    reports = RollReports()
    assert reports.current(0) is None
    reports.replace(REPORT, 2000)
    assert reports.current(3500) == StoredRoll(1.5, REPORT)
    assert reports.current(2001 + REPORT_EXPIRY_MS) is None
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


async def send_report(ctx: RequestContext, text: str | None) -> ErrorCode:
    code, _ = await alter_report(ctx, ROLL_RESOURCE, "", text)
    return code


@async_test
async def test_report_is_described_to_those_who_may_describe_the_cluster_s_configs(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        configs = broker.image.configs.copy()
        assert await send_report(context(broker, 1, DenyAll()), TEXT) is ErrorCode.cluster_authorization_failed
        assert read_roll((await describe_reports(context(broker, 4), ROLL_RESOURCE)).configs) is None
        assert await send_report(context(broker, 1), TEXT) is ErrorCode.none
        found = read_roll((await describe_reports(context(broker, 4), ROLL_RESOURCE)).configs)
        assert found is not None and found.report == REPORT
        denied = await describe_reports(context(broker, 4, DenyAll()), ROLL_RESOURCE)
        assert (denied.error_code, list(denied.configs)) == (ErrorCode.cluster_authorization_failed, [])
        assert broker.image.configs == configs, "nothing is in the metadata log"
        assert await send_report(context(broker, 1), None) is ErrorCode.none
        assert read_roll((await describe_reports(context(broker, 4), ROLL_RESOURCE)).configs) is None
