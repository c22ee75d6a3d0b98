"""The report of a rolling restart at the active controller (config resource type 105,
docs/operator.md).
"""

import msgspec

from ottla_broker.wire.pipeline_report import REPORT
from ottla_broker.wire.roll_report import RollReport
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.configs import ConfigResourceType, alter_configs

NAME = ""


async def report_roll(client: KafkaClient, report: RollReport | None) -> None:
    """Replaces the cluster's report; None removes it."""
    text = None if report is None else msgspec.json.encode(report).decode()
    await alter_configs(client, ConfigResourceType.roll, {NAME: {REPORT: text}})
