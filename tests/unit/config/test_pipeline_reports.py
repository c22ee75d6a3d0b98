"""Reports of pipelines: sent to the controller as configs of type 104, and kept in its memory."""

from pathlib import Path

import msgspec
import pytest

from ottla_broker.broker import Broker
from ottla_broker.telemetry.pipeline_reports import MAX_PIPELINES, REPORT_EXPIRY_MS, PipelineReports, parse_report
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import (
    MAX_REPORT_BYTES,
    PIPELINE_RESOURCE,
    PipelineReport,
    PipelineView,
    StoredReport,
)
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll
from tests.unit.config.api_broker import alter_report, broker_with_topic, context, describe_reports

REPORT = PipelineReport("Running", lag_records=3, views=(PipelineView("a", "source", "t"),))
TEXT = msgspec.json.encode(REPORT).decode()


def test_last_report_of_a_pipeline_counts_until_it_is_old() -> None:
    reports = PipelineReports()
    reports.add("hourly", PipelineReport("Starting"), 1000)
    reports.add("hourly", REPORT, 2000)
    assert reports.current(3500) == {"hourly": StoredReport(1.5, REPORT)}
    assert reports.current(2000 + REPORT_EXPIRY_MS) != {}
    assert reports.current(2001 + REPORT_EXPIRY_MS) == {}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("", TEXT, "a pipeline's name has 1 to 253 characters"),
        ("a", "{}", "not a report of a pipeline: Object missing required field `state`"),
        ("a", "[]", "not a report of a pipeline: Expected `object`, got `array`"),
        ("a", " " * (MAX_REPORT_BYTES + 1), "a report has at most 65536 bytes"),
    ],
)
def test_invalid_reports_are_refused(name: str, text: str, problem: str) -> None:
    with pytest.raises(KafkaError) as refused:
        parse_report(name, text)
    assert refused.value.code is ErrorCode.invalid_request and problem in str(refused.value)


def test_number_of_pipelines_is_bounded() -> None:
    reports = PipelineReports()
    for number in range(MAX_PIPELINES):
        reports.add(f"p{number}", REPORT, 0)
    with pytest.raises(KafkaError, match="are reported already"):
        reports.add("one-more", REPORT, 0)
    reports.add("p0", REPORT, 1)
    reports.remove("p1")
    reports.add("one-more", REPORT, 1)


async def read_reports(broker: Broker, name: str = "") -> dict[str, str]:
    result = await describe_reports(context(broker, 4), PIPELINE_RESOURCE, name)
    assert result.error_code is ErrorCode.none
    return {one.name: one.value or "" for one in result.configs}


@async_test
async def test_report_is_described_and_not_in_the_metadata_log(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        configs = broker.image.configs.copy()
        assert await alter_report(context(broker, 1), PIPELINE_RESOURCE, "hourly", TEXT) == (ErrorCode.none, None)
        found = await read_reports(broker)
        assert msgspec.json.decode(found["hourly"], type=StoredReport).report == REPORT
        assert (await read_reports(broker, "hourly")).keys() == {"hourly"}
        assert await read_reports(broker, "daily") == {}
        assert broker.image.configs == configs
        assert await alter_report(context(broker, 1), PIPELINE_RESOURCE, "hourly", None) == (ErrorCode.none, None)
        assert await read_reports(broker) == {}


@async_test
async def test_reports_need_the_rights_of_the_cluster_s_configs(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as broker:
        code, _ = await alter_report(context(broker, 1, DenyAll()), PIPELINE_RESOURCE, "hourly", TEXT)
        assert code is ErrorCode.cluster_authorization_failed
        code, message = await alter_report(context(broker, 1), PIPELINE_RESOURCE, "hourly", TEXT, key="retention.ms")
        assert (code, message) == (ErrorCode.invalid_request, "a pipeline has one config, report, not retention.ms")
