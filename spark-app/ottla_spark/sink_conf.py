"""Spark's configuration that the sinks of a pipeline need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla_operator.resources.sinks import Sink
from ottla_spark.iceberg_catalog import NO_PROPERTIES, iceberg_conf

EXTENSIONS: Final = "spark.sql.extensions"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_DEFAULTS: Final = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's default of 50 tasks for each read of a table's log is for millions of files.
    "spark.databricks.delta.snapshotPartitions": "4",
}


def with_sink_conf(
    own: Mapping[str, str],
    sinks: Sequence[Sink],
    folder: Path,
    secrets: Path | None,
    rest_properties: Mapping[str, str] = NO_PROPERTIES,
) -> dict[str, str]:
    """The pipeline's own properties over those of its sinks. Delta's extension is added to the
    pipeline's. `folder`: base of relative paths. `rest_properties`: defaults of Iceberg's REST
    catalogs. Raises PipelineError; see `iceberg_conf`.
    """
    conf = {**iceberg_conf(sinks, folder, secrets, rest_properties), **own}
    if any(it.delta is not None for it in sinks):
        extensions = [it for it in own.get(EXTENSIONS, "").split(",") if it not in ("", _DELTA_EXTENSION)]
        conf = {**_DELTA_DEFAULTS, **conf, EXTENSIONS: ",".join([*extensions, _DELTA_EXTENSION])}
    return conf
