"""Reports to the active controller, for the brokers' console: of pipelines and of a rolling restart
(config resource types 104 and 105, docs/pipelines.md and docs/operator.md).
"""

from typing import Final

import msgspec

from ottla_broker.wire.pipeline_report import REPORT, PipelineReport, StoredReport, read_reports
from ottla_broker.wire.roll_report import RollReport
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.configs import ConfigResourceType, alter_configs, describe_config_at_controller

ALL_PIPELINES: Final = ""
"""Name of the resource that has the reports of all pipelines."""
ROLL: Final = ""
"""Name of the resource that has the report of a rolling restart."""


async def report_pipeline(client: KafkaClient, name: str, report: PipelineReport | None) -> None:
    """Replaces the pipeline's report; None removes it."""
    await _replace_report(client, ConfigResourceType.pipeline, name, report)


async def list_pipelines(client: KafkaClient) -> dict[str, StoredReport]:
    """The reports by the pipeline's name."""
    result = await describe_config_at_controller(client, ConfigResourceType.pipeline, ALL_PIPELINES)
    return read_reports(result.configs)


async def report_roll(client: KafkaClient, report: RollReport | None) -> None:
    """Replaces the cluster's report; None removes it."""
    await _replace_report(client, ConfigResourceType.roll, ROLL, report)


async def _replace_report(
    client: KafkaClient, type_: ConfigResourceType, name: str, report: PipelineReport | RollReport | None
) -> None:
    text = None if report is None else msgspec.json.encode(report).decode()
    await alter_configs(client, type_, {name: {REPORT: text}})
