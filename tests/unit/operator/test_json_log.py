"""Logs as JSON: lines of a reconcile name its resource; a Cluster sets its brokers' format."""

import asyncio
import json
import logging

import pytest

from ottla_broker.log_format import JsonFormatter
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.objects.desired import ObjectInputs, desired_objects
from ottla_operator.reconcile.watch_cache import Key
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator.kubernetes_clusters import cluster_with
from tests.unit.operator.pipeline_world import PipelineWorld, pipeline_api


def test_lines_of_a_reconcile_name_its_resource() -> None:
    lines: list[str] = []

    async def reconcile(key: Key) -> float | None:
        record = logging.LogRecord("ottla.operator", logging.INFO, "", 0, "reconciled", (), None)
        lines.append(JsonFormatter().format(record))
        return None

    measured = PipelineWorld(pipeline_api()).controller._measured("Pipeline", reconcile)

    async def scenario() -> None:
        await measured(Key("events", "hourly"))
        await measured(Key("events", "hourly"))

    asyncio.run(scenario())
    found = [json.loads(line) for line in lines]
    assert [(it["kind"], it["resource"], it["reconcile"]) for it in found] == [
        ("Pipeline", "events/hourly", 1),
        ("Pipeline", "events/hourly", 2),
    ]
    assert "resource" not in json.loads(
        JsonFormatter().format(logging.LogRecord("ottla.operator", logging.INFO, "", 0, "after", (), None))
    )


@pytest.mark.parametrize(("log_format", "argument_count"), [(None, 4), ("text", 4), ("json", 6)])
def test_brokers_log_in_the_format_of_the_cluster(log_format: str | None, argument_count: int) -> None:
    fields = {"logFormat": log_format} if log_format else {}
    args = make_args(cluster_with(**fields))
    assert len(args) == argument_count
    assert (args[-2:] == ["--log-format", "json"]) == (log_format == "json")


def make_args(made: Cluster) -> list[str]:
    stateful_set = desired_objects(made, BrokerImages("b", "1"), ObjectInputs(brokers=1)).stateful_set
    assert stateful_set is not None
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return list(container["args"])
