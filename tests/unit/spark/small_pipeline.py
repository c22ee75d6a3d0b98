"""A small Pipeline, for tests without Spark."""

from pathlib import Path
from typing import Any

from ottla_operator.resources.common import API_VERSION
from ottla_spark.definition import PipelineDefinition, parse_pipeline

RAW = {"type": "raw"}


def small_pipeline(**sources: dict[str, Any]) -> PipelineDefinition:
    """The Pipeline `p`, which prints the rows of its source `s`. `s` reads topic `t` unless
    `sources` has another `s`.
    """
    return parse_pipeline(
        {
            "apiVersion": API_VERSION,
            "kind": "Pipeline",
            "metadata": {"name": "p"},
            "spec": {
                "clusterRef": {"name": "c"},
                "sources": {"s": {"topic": "t", "format": RAW}, **sources},
                "sinks": [{"from": "s", "console": {}}],
            },
        },
        Path(),
    )
