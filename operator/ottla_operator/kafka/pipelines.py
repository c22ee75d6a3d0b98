"""Reports of pipelines at the active controller (config resource type 104, docs/pipelines.md)."""

import msgspec

from ottla_broker.wire.pipeline_report import REPORT, PipelineReport, StoredReport, read_reports
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.configs import ConfigResourceType, alter_configs, describe_config_at_controller

ALL = ""
"""Name of the resource that has the reports of all pipelines."""


async def report_pipeline(client: KafkaClient, name: str, report: PipelineReport | None) -> None:
    """Replaces the pipeline's report; None removes it."""
    text = None if report is None else msgspec.json.encode(report).decode()
    await alter_configs(client, ConfigResourceType.pipeline, {name: {REPORT: text}})


async def list_pipelines(client: KafkaClient) -> dict[str, StoredReport]:
    """The reports by the pipeline's name."""
    result = await describe_config_at_controller(client, ConfigResourceType.pipeline, ALL)
    return read_reports(result.configs)
