"""The Pipeline of a Topic with `lake`: it appends the topic's records to a table. Pure.

Each row has the columns of the record's value and the origin of the record: `record_timestamp`,
`record_partition` and `record_offset`. The Topic owns the Pipeline.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla_operator.plan.conditions import READY, find_condition
from ottla_operator.plan.objects.names import NAME_PREFIX
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.model import Json
from ottla_operator.resources.topic import Topic

_PREFIX: Final = "lake-"
SQLITE: Final = "jdbc:sqlite:"
_ROWS: Final = (
    "SELECT _timestamp AS record_timestamp, _partition AS record_partition, _offset AS record_offset, * FROM records"
)
DEFAULT_CHECKPOINT: Final = {"pvc": {"size": "1Gi"}}


def lake_pipeline_name(topic: str) -> str:
    """`topic`: name of the Topic resource. Names of pipelines begin the names of pods, so longer
    ones and those with dots end with a digest.
    """
    name = f"{_PREFIX}{topic}"
    if NAME_PREFIX.fullmatch(name):
        return name
    digest = hashlib.sha256(topic.encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "-", topic.lower())[:24].strip("-")
    return f"{_PREFIX}{readable}-{digest}" if readable else f"{_PREFIX}{digest}"


def lake_pipeline(topic: Topic) -> Json | None:
    """None if the Topic has no lake."""
    lake = topic.spec.lake
    if lake is None:
        return None
    iceberg = lake.iceberg.to_json()
    spec: dict[str, Json] = {
        "clusterRef": {"name": topic.spec.cluster_ref.name},
        "sources": {
            "records": {
                "topic": topic.topic_name,
                "format": lake.format.to_json(),
                **({"key": lake.key} if lake.key else {}),
            }
        },
        "transforms": [{"name": "rows", "sql": _ROWS}],
        "sinks": [
            {
                "from": "rows",
                "name": "lake",
                "iceberg": {
                    **iceberg,
                    "partitionBy": ["days(record_timestamp)"],
                    "maintenance": lake.iceberg.maintenance.to_json(),
                },
            }
        ],
        "trigger": {"interval": lake.interval},
        "checkpoint": lake.checkpoint.to_json() if lake.checkpoint else DEFAULT_CHECKPOINT,
    }
    if lake.s3 is not None:
        spec["s3"] = lake.s3.to_json()
    if lake.spark is not None:
        spec["spark"] = lake.spark.to_json()
    metadata = {"name": lake_pipeline_name(topic.name), "namespace": topic.metadata.namespace}
    return {"apiVersion": API_VERSION, "kind": "Pipeline", "metadata": metadata, "spec": spec}


def lake_status(topic: Topic, pipeline: Json | None) -> dict[str, Json] | None:
    """Status of the Topic's lake; None if it has none. `pipeline`: as it was observed last."""
    if topic.spec.lake is None:
        return None
    status: Mapping[str, Json] = (pipeline or {}).get("status") or {}
    kept = {key: status[key] for key in ("state", "lagRecords", "lagSeconds") if status.get(key) is not None}
    ready = find_condition(pipeline or {}, READY)
    if ready.get("status") == "False":
        kept["message"] = ready.get("message")
    return {"pipeline": lake_pipeline_name(topic.name), **kept}


def with_absolute_paths(pipeline: Json, folder: Path) -> Json:
    """The Pipeline of a Topic with paths that begin at `folder`, which has the Topic's file: the
    Pipeline's own file is elsewhere.
    """
    (sink,) = pipeline["spec"]["sinks"]
    catalog = dict(sink["iceberg"].get("catalog") or {})
    if "warehouse" in catalog and catalog["type"] != "rest" and "://" not in catalog["warehouse"]:
        catalog["warehouse"] = str(folder / catalog["warehouse"])
    if (path := catalog.get("uri", "")).startswith(SQLITE):
        catalog["uri"] = SQLITE + str(folder / path.removeprefix(SQLITE))
    if not catalog:
        return pipeline
    absolute = {**sink, "iceberg": {**sink["iceberg"], "catalog": catalog}}
    return {**pipeline, "spec": {**pipeline["spec"], "sinks": [absolute]}}
