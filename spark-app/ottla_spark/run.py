"""Running a pipeline: its environment, and its states from starting to finished or failed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import MissingDependency, PipelineError, describe_error
from ottla_spark.progress import ProgressLog
from ottla_spark.progress_snapshot import ProgressSnapshot


@dataclass(frozen=True, slots=True)
class RuntimeEnvironment:
    """What a pipeline runs with besides its resource.

    master: Spark's master; None runs on this machine. kafka: client properties. conf: Spark configuration that
    overrides the pipeline's. snapshot: receives the pipeline's progress.
    """

    bootstrap: str
    checkpoint: str
    progress: Path | None = None
    log: Path | None = None
    master: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    snapshot: ProgressSnapshot = field(default_factory=ProgressSnapshot)

    @property
    def client_properties(self) -> dict[str, str]:
        return {**self.kafka, "bootstrap.servers": self.bootstrap}


def run_pipeline(
    pipeline: PipelineDefinition, environment: RuntimeEnvironment, stop_requested: threading.Event
) -> None:
    """Returns when the pipeline has finished or was stopped. Raises PipelineError, which is also in the progress."""
    progress = ProgressLog(environment.progress, pipeline.name, environment.snapshot)
    if pipeline.spec.state == "suspended":
        progress.write_state("suspended")
        return
    progress.write_state("starting")
    try:
        require_pyspark()
        # PySpark is optional: imported here, its absence is reported as the pipeline's error.
        from ottla_spark.streaming.query_runner import run_queries

        run_queries(pipeline, environment, progress, stop_requested)
    except PipelineError as error:
        progress.write_state("failed", error=str(error))
        raise
    except BaseException as error:
        progress.write_state("failed", error=f"unexpected: {describe_error(error)}")
        raise


def require_pyspark() -> None:
    """Raises MissingDependency."""
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        raise MissingDependency("pipelines need PySpark: pip install 'ottla[spark]'")
