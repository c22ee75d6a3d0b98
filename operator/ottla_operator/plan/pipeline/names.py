"""Names, labels and annotations of the objects of a Pipeline."""

from typing import Final

from ottla_operator.plan.objects.names import FIELD_MANAGER, INSTANCE, object_metadata
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

COMPONENT: Final = "app.kubernetes.io/component"
DRIVER, EXECUTOR = "pipeline-driver", "pipeline-executor"
POD_COMPONENTS: Final = frozenset({DRIVER, EXECUTOR})
OTHER: Final = "pipeline"
"""Component of objects that are neither of the two."""
FINISHED: Final = "ottla.dev/finished"
"""Annotation of the Deployment: name of the ConfigMap with which the driver has read everything and
exited.
"""
LOGIN: Final = "ottla.dev/login"
"""Annotation of driver pods: digest of the login that they have at brokers."""
HTTP_PORT: Final = "http-metrics"


def labels(pipeline: Pipeline, component: str = OTHER) -> dict[str, str]:
    return {**selector(pipeline, component), "app.kubernetes.io/managed-by": FIELD_MANAGER}


def selector(pipeline: Pipeline, component: str) -> dict[str, str]:
    return {**common_labels(pipeline), COMPONENT: component}


def common_labels(pipeline: Pipeline) -> dict[str, str]:
    """Labels of all objects of the pipeline. A Cluster of the same name has them too."""
    return {"app.kubernetes.io/name": "ottla", INSTANCE: pipeline.name}


def selector_text(pipeline: Pipeline) -> str:
    """The selector of `common_labels` in the form of list requests."""
    return ",".join(f"{key}={value}" for key, value in common_labels(pipeline).items())


def metadata(
    pipeline: Pipeline,
    name: str,
    *,
    component: str = OTHER,
    is_owned: bool = True,
    annotations: dict[str, str] | None = None,
) -> Json:
    """`is_owned`: True if the object is deleted with the Pipeline."""
    return object_metadata(pipeline, name, labels(pipeline, component), is_owned=is_owned, annotations=annotations)


def driver(pipeline: Pipeline) -> str:
    """Name of the Deployment, and of the driver's ServiceAccount, Role and RoleBinding."""
    return f"{pipeline.name}-driver"


def application(pipeline: Pipeline) -> str:
    """Name of the SparkApplication."""
    return pipeline.name


def network_policy(pipeline: Pipeline) -> str:
    """Name of the NetworkPolicy, which differs from that of a Cluster with the same name."""
    return f"{pipeline.name}-pipeline"


def config_map(pipeline: Pipeline, digest: str) -> str:
    return f"{pipeline.name}-pipeline-{digest}"


def claim(pipeline: Pipeline) -> str:
    """Name of the checkpoint's volume claim that the operator creates."""
    return f"{pipeline.name}-checkpoint"
