"""The start of Spark for a pipeline. The JVM starts before PySpark is imported, so that both load
at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla_operator.resources.pipeline import PipelineSpec
from ottla_operator.resources.sinks import SINK_TARGETS, Sink
from ottla_spark import jars
from ottla_spark.class_archive import ClassArchive, class_archive
from ottla_spark.definition import PipelineDefinition
from ottla_spark.jvm import Jvm, has_jvm
from ottla_spark.progress import ProgressLog
from ottla_spark.runtime_environment import RuntimeEnvironment
from ottla_spark.s3_conf import iceberg_s3_properties, s3_conf, uses_s3
from ottla_spark.sink_conf import with_sink_conf
from ottla_spark.spark_conf import local_checkpoint_conf, spark_conf

_CATALOG_DRIVERS: Final = {"jdbc:sqlite:": "sqlite", "jdbc:postgresql:": "jdbc"}
"""Beginning of an Iceberg catalog's URI → key of `jars.EXTRA_JARS` with its driver."""


@dataclass(frozen=True, slots=True)
class SparkLaunch:
    """What a Spark session that is being started needs. conf: Spark's configuration. scratch:
    folder for files of this run. archive: of the JVM's classes; None if the run names a Spark
    master. jvm: None if this process already had one.
    """

    conf: dict[str, str]
    scratch: Path
    archive: ClassArchive | None
    jvm: Jvm | None

    def stop_unused_jvm(self) -> None:
        """Stops a JVM that PySpark has not connected to."""
        if self.jvm is not None and not has_jvm():
            self.jvm.stop()


def launch_spark(
    pipeline: PipelineDefinition, environment: RuntimeEnvironment, progress: ProgressLog, scratch: Path
) -> SparkLaunch:
    """Downloads jars that are missing, and starts the JVM. Raises PipelineError."""
    names = pipeline_jars(pipeline.spec, environment.checkpoint)
    needed = jars.ensure_jars(names, notify=lambda message: progress.write_state("starting", doing=message))
    archive = class_archive(jars.cache_folder(), needed, scratch) if environment.master is None else None
    conf = spark_conf(
        pipeline_conf(pipeline, environment),
        master=environment.master,
        jars=needed,
        scratch=scratch,
        log=environment.log or scratch / "spark.log",
        archive=archive,
    )
    return SparkLaunch(conf, scratch, archive, None if has_jvm() else Jvm(conf, scratch))


def pipeline_jars(spec: PipelineSpec, checkpoint: str) -> set[str]:
    """Keys of `jars.EXTRA_JARS` that a pipeline needs; the result may have other names, of sinks
    that need no jars. `checkpoint`: path or URL.
    """
    return sink_jars(spec.sinks) | ({"s3"} if uses_s3(spec, checkpoint) else set())


def sink_jars(sinks: Iterable[Sink]) -> set[str]:
    """`pipeline_jars` of the sinks alone."""
    sinks = tuple(sinks)
    found = {name for name in SINK_TARGETS for it in sinks if getattr(it, name) is not None}
    catalogs = [it.iceberg.catalog for it in sinks if it.iceberg is not None]
    for uri in (it.uri or "" for it in catalogs if it is not None):
        found |= {name for start, name in _CATALOG_DRIVERS.items() if uri.startswith(start)}
    return found


def pipeline_conf(pipeline: PipelineDefinition, environment: RuntimeEnvironment) -> dict[str, str]:
    """Spark's properties of the pipeline, its sinks and object stores, with the values of their
    Secrets. Raises PipelineError.
    """
    spec, secrets = pipeline.spec, environment.secrets
    own = {
        **local_checkpoint_conf(environment.checkpoint),
        **s3_conf(spec, environment.checkpoint, secrets),
        **spec.spark.conf,
        **environment.conf,
    }
    return with_sink_conf(own, spec.sinks, pipeline.folder, secrets, iceberg_s3_properties(spec.s3, secrets))
