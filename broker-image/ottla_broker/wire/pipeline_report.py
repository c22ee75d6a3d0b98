"""What the operator, or `ottla up`, reports of a pipeline to the active controller, as JSON.

It is the value of a config of resource type 104 (docs/pipelines.md). The controller keeps it in
memory and puts nothing into the metadata log: reports repeat, and the next controller has them
after one interval.
"""

from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

PIPELINE_RESOURCE = 104
REPORT = "report"
"""Name of the config with which a report is sent. DescribeConfigs names a pipeline's report by the
pipeline instead."""
MAX_REPORT_BYTES = 64 << 10


class PipelineView(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A source, a step, or a sink. `topic`: of a source, or of a sink that writes one. `target`:
    the kind of a step or sink and what it writes, such as `iceberg lake.flights`. `reads`: names of
    the views whose rows it gets.
    """

    name: str
    kind: Literal["source", "step", "sink"]
    topic: str = ""
    target: str = ""
    reads: tuple[str, ...] = ()


class PipelineReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`state`: as in the status of a Pipeline, and `message`, which says why. `last_progress`: RFC
    3339. `spark_ui`: URL of Spark's web UI as the driver knows it; empty where it is off. None and
    empty texts: unknown.
    """

    state: str
    message: str = ""
    error: str = ""
    input_rows_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    last_progress: str = ""
    restarts: int | None = None
    group: str = ""
    application: str = ""
    spark_ui: str = ""
    views: tuple[PipelineView, ...] = ()

    @property
    def topics(self) -> set[str]:
        """The topics that the pipeline reads or writes."""
        return {view.topic for view in self.views if view.topic}


class DescribedConfig(Protocol):
    """A config in the response to DescribeConfigs."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...


class StoredReport(msgspec.Struct, frozen=True, rename="camel"):
    """A report as the controller describes it. `age_seconds`: since it came."""

    age_seconds: float
    report: PipelineReport


def read_reports(configs: Iterable[DescribedConfig]) -> dict[str, StoredReport]:
    """The reports by pipeline. `configs`: of a DescribeConfigs response, named by the pipelines."""
    return {str(it.name): msgspec.json.decode(it.value or "", type=StoredReport) for it in configs}
