"""Running a pipeline: its states from starting to finished or failed."""

from __future__ import annotations

import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import MissingDependency, PipelineError, describe_error
from ottla_spark.launch import launch_spark
from ottla_spark.progress import ProgressLog
from ottla_spark.runtime_environment import RuntimeEnvironment


def run_pipeline(
    pipeline: PipelineDefinition, environment: RuntimeEnvironment, stop_requested: threading.Event
) -> None:
    """Returns when the pipeline has finished or was stopped; at once if it is suspended. Raises
    PipelineError, which is also in the progress.
    """
    progress = ProgressLog(
        environment.progress, pipeline.name, environment.snapshot, environment.display, environment.report
    )
    if pipeline.spec.state == "suspended":
        progress.write_state("suspended")
        return
    progress.write_state("starting")
    try:
        require_pyspark()
        with tempfile.TemporaryDirectory(prefix="ottla-spark-", ignore_cleanup_errors=True) as scratch:
            launch = launch_spark(pipeline, environment, progress, Path(scratch))
            try:
                # PySpark is optional: imported here, its absence is reported as the pipeline's
                # error. The JVM starts meanwhile.
                from ottla_spark.streaming.query_runner import run_queries

                run_queries(pipeline, environment, launch, progress, stop_requested)
            finally:
                launch.stop_unused_jvm()
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
