"""What a driver is started with: the pipeline itself and its executors' pod, in a ConfigMap that is named by what is in it and never changed."""

import hashlib
import json
from typing import Final

from ottla_operator.plan.pipeline import names, spark
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

PIPELINE, EXECUTOR = "pipeline.json", "executor.json"
AT: Final = "/etc/ottla"
_NOT_THE_DRIVERS: Final = ("state", "launcher", "checkpoint", "spark")


def config_map(pipeline: Pipeline, executor: Json) -> Json:
    """`executor`: the pod template of executors."""
    data = {PIPELINE: _text(_for_the_driver(pipeline)), EXECUTOR: _text(executor)}
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(pipeline, names.settings(pipeline, digest)),
        "immutable": True,
        "data": data,
    }


def _for_the_driver(pipeline: Pipeline) -> Json:
    """Without what is decided here: so that a pipeline that is stopped and started again is still the same."""
    spec = pipeline.spec.to_json()
    kept = {key: value for key, value in spec.items() if key not in _NOT_THE_DRIVERS}
    return {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": pipeline.name, "namespace": pipeline.metadata.namespace},
        "spec": {**kept, "spark": {"conf": spark.complete_conf(pipeline)}},
    }


def _text(it: Json) -> str:
    """JSON is YAML, too."""
    return json.dumps(it, indent=2, sort_keys=True) + "\n"
