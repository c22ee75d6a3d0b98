"""What the objects of a Pipeline are called, and by which labels they are found again."""

from typing import Final

from ottla_operator.plan.objects.names import FIELD_MANAGER, INSTANCE
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

COMPONENT: Final = "app.kubernetes.io/component"
DRIVER, EXECUTOR = "pipeline-driver", "pipeline-executor"
PODS: Final = frozenset({DRIVER, EXECUTOR})
PART: Final = "pipeline"
"""Component of what is neither of the two."""
FINISHED: Final = "ottla.dev/finished"
"""Annotation of the Deployment: the ConfigMap whose pipeline has read what there was and ended."""
HTTP_PORT: Final = "http-metrics"


def labels(pipeline: Pipeline, component: str = PART) -> dict[str, str]:
    return {**selector(pipeline, component), "app.kubernetes.io/managed-by": FIELD_MANAGER}


def selector(pipeline: Pipeline, component: str) -> dict[str, str]:
    return {**common(pipeline), COMPONENT: component}


def common(pipeline: Pipeline) -> dict[str, str]:
    """Of everything that belongs to the pipeline; and, where a Cluster has the same name, to that."""
    return {"app.kubernetes.io/name": "ottla", INSTANCE: pipeline.name}


def selector_text(pipeline: Pipeline) -> str:
    """Of `common`, as list requests take it."""
    return ",".join(f"{key}={value}" for key, value in common(pipeline).items())


def metadata(
    pipeline: Pipeline,
    name: str,
    *,
    component: str = PART,
    owned: bool = True,
    annotations: dict[str, str] | None = None,
) -> Json:
    """`owned`: whether the object goes when the Pipeline goes."""
    made: Json = {"name": name, "namespace": pipeline.metadata.namespace, "labels": labels(pipeline, component)}
    if annotations:
        made["annotations"] = annotations
    if owned:
        made["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": "Pipeline",
                "name": pipeline.name,
                "uid": pipeline.metadata.uid,
                "controller": True,
            }
        ]
    return made


def driver(pipeline: Pipeline) -> str:
    """Of the Deployment, and of the account that the driver has."""
    return f"{pipeline.name}-driver"


def application(pipeline: Pipeline) -> str:
    """Of the SparkApplication."""
    return pipeline.name


def settings(pipeline: Pipeline, digest: str) -> str:
    return f"{pipeline.name}-pipeline-{digest}"


def claim(pipeline: Pipeline) -> str:
    """Of the volume claim that the operator makes for the checkpoint."""
    return f"{pipeline.name}-checkpoint"
