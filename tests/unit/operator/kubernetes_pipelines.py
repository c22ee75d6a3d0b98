"""Pipelines that Kubernetes can run, and how they are launched."""

import json
from typing import Any

from ottla_operator.plan.pipeline.desired import (
    DesiredLaunch,
    LaunchInputs,
)
from ottla_operator.plan.pipeline.pods import BrokerConnection, PipelineImage
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.validation import validate_resource
from tests.unit.operator import samples

IMAGE = PipelineImage("registry.example/ottla-spark:0.1.0")


LAUNCH_INPUTS = LaunchInputs(
    "SparkOperator", BrokerConnection("demo-plain-bootstrap.events.svc:9092"), ("ReadWriteMany",)
)


CHECKPOINT = {"pvc": {"size": "1Gi"}}


def valid_pipeline(data: dict[str, Any], **spec: Any) -> Pipeline:
    metadata = {"namespace": "events", "uid": "p1", **data["metadata"]}
    whole = {**data, "metadata": metadata, "spec": {**data["spec"], **spec}}
    assert not validate_resource(whole)
    return Pipeline.parse(whole)


def pipeline_with(**spec: Any) -> Pipeline:
    return valid_pipeline(samples.pipeline(), **{"checkpoint": CHECKPOINT, **spec})


def driver_definition(found: DesiredLaunch) -> Any:
    (config_map,) = (it for it in found.prerequisites if it["kind"] == "ConfigMap")
    return json.loads(config_map["data"]["pipeline.json"])
