"""What is reported to brokers about a pipeline, for their console. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ottla_broker.wire.pipeline_report import PipelineReport, PipelineView
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline, PipelineSpec
from ottla_operator.resources.sinks import SINK_TARGETS, Sink
from ottla_operator.resources.transforms import Transform

MAX_TEXT: Final = 4096


def build_report(pipeline: Pipeline, status: Mapping[str, Json], message: str, spark_ui: str) -> PipelineReport:
    """`status`: the fields of the Pipeline's status. `message`: that of its condition Ready."""
    return PipelineReport(
        str(status.get("state") or "Pending"),
        message[:MAX_TEXT],
        str(status.get("lastError") or "")[:MAX_TEXT],
        status.get("inputRowsPerSecond"),
        status.get("lagRecords"),
        status.get("lagSeconds"),
        str(status.get("lastProgress") or ""),
        status.get("restarts"),
        pipeline.consumer_group,
        str(status.get("application") or ""),
        spark_ui,
        tuple(describe_views(pipeline.spec)),
    )


def describe_views(spec: PipelineSpec) -> Iterator[PipelineView]:
    """Sources, steps and sinks, each after what it reads."""
    known: list[str] = []
    for name, source in spec.sources.items():
        yield PipelineView(name, "source", source.topic, source.mode)
        known.append(name)
    for step in spec.transforms:
        kind, reads = describe_step(step, known)
        yield PipelineView(step.name, "step", target=kind, reads=reads)
        known.append(step.name)
    for sink in spec.sinks:
        yield PipelineView(sink.name or sink.source, "sink", sink.topic or "", describe_target(sink), (sink.source,))
    if spec.dead_letter is not None:
        yield PipelineView("dead letters", "sink", spec.dead_letter.topic, reads=tuple(spec.sources))


def describe_step(step: Transform, known: list[str]) -> tuple[str, tuple[str, ...]]:
    """The kind of a step and the views that it reads. Those of SQL are the names that occur in it;
    a Python function gets every view before it.
    """
    if step.union is not None:
        return "union", tuple(step.union)
    if step.transform_with_state is not None:
        return "transformWithState", (step.transform_with_state.source,)
    if step.sql is not None:
        words = {word.lower() for word in re.findall(r"\w+", step.sql)}
        return "sql", tuple(name for name in known if name.lower() in words)
    return "python", tuple(known)


def describe_target(sink: Sink) -> str:
    """Kind and table or folder of a sink's target, such as `iceberg lake.flights`. URLs of
    databases are left out, because they may contain passwords.
    """
    for kind in SINK_TARGETS:
        if (target := getattr(sink, kind)) is not None:
            table = "" if kind == "topic" else getattr(target, "table", "") or getattr(target, "path", "")
            return f"{kind} {table}".strip()
    return ""
