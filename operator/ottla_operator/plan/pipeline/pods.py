"""The pods of a Pipeline: the driver's container and the executors' template, the same whoever launches them.

Kubernetes' restricted security profile holds; nothing is written but /tmp, Spark's own scratch volumes and the checkpoint.
"""

from dataclasses import dataclass
from typing import Final

from ottla_operator.plan.objects.security_context import container_security, pod_security
from ottla_operator.plan.pipeline import names, settings
from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

CHECKPOINT_AT: Final = "/checkpoint"
HTTP: Final = 8080
DRIVER_CONTAINER, EXECUTOR_CONTAINER = "spark-kubernetes-driver", "spark-kubernetes-executor"
TERMINATION_MESSAGE: Final = "/dev/termination-log"
BATCH_WITHIN: Final = "30s"
CLOSE_WITHIN_S: Final = 15  # Spark itself, after the batch in flight has ended


@dataclass(frozen=True, slots=True)
class PipelineImage:
    """`reference` of the pipelines' image, where a Pipeline names no other."""

    reference: str
    pull_policy: str = "IfNotPresent"

    def of(self, pipeline: Pipeline) -> str:
        return (pipeline.spec.spark and pipeline.spec.spark.image) or self.reference


def arguments(pipeline: Pipeline, bootstrap: str, master: str) -> list[str]:
    """Of the runner (`python -m ottla_spark`)."""
    return [
        "run",
        *("--pipeline", f"{settings.AT}/{settings.PIPELINE}"),
        *("--bootstrap", bootstrap),
        *("--checkpoint", checkpoint_at(pipeline)),
        *("--master", master),
        *("--log", "/dev/stderr"),
        *("--http", f":{HTTP}"),
        *("--termination-message", TERMINATION_MESSAGE),
    ]


def stop_within_s(pipeline: Pipeline) -> int:
    stop = pipeline.spec.stop
    return -(-parse_duration_ms((stop and stop.graceful) or BATCH_WITHIN) // 1000) + CLOSE_WITHIN_S


def driver_container(pipeline: Pipeline) -> Json:
    """But for what the launchers give it: image, arguments, resources."""
    return {
        "name": DRIVER_CONTAINER,
        "ports": [{"name": names.HTTP_PORT, "containerPort": HTTP, "protocol": "TCP"}],
        "securityContext": container_security(),
        "terminationMessagePath": TERMINATION_MESSAGE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "pipeline", "mountPath": settings.AT, "readOnly": True},
            *_mounts(pipeline),
        ],
    }


def driver_volumes(pipeline: Pipeline, config_map: str) -> list[Json]:
    return [{"name": "pipeline", "configMap": {"name": config_map}}, *_volumes(pipeline)]


def executor_template(pipeline: Pipeline, *, beside_driver: bool) -> Json:
    """`beside_driver`: on its node, because the checkpoint's volume can be written from one node alone."""
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "containers": [
            {
                "name": EXECUTOR_CONTAINER,
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": _mounts(pipeline),
            }
        ],
        "volumes": _volumes(pipeline),
    }
    if beside_driver:
        near = {
            "labelSelector": {"matchLabels": names.selector(pipeline, names.DRIVER)},
            "topologyKey": "kubernetes.io/hostname",
        }
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": names.labels(pipeline, names.EXECUTOR)},
        "spec": spec,
    }


def checkpoint_at(pipeline: Pipeline) -> str:
    checkpoint = pipeline.spec.checkpoint
    assert checkpoint is not None
    return checkpoint.path or CHECKPOINT_AT


def checkpoint_claim(pipeline: Pipeline) -> str | None:
    """Name of the volume claim that the checkpoint is on, if it is on one."""
    checkpoint = pipeline.spec.checkpoint
    if checkpoint is None or checkpoint.pvc is None:
        return None
    return checkpoint.pvc.claim_name or names.claim(pipeline)


def _mounts(pipeline: Pipeline) -> list[Json]:
    found = [{"name": "tmp", "mountPath": "/tmp"}]
    if checkpoint_claim(pipeline):
        found.append({"name": "checkpoint", "mountPath": CHECKPOINT_AT})
    return found


def _volumes(pipeline: Pipeline) -> list[Json]:
    found: list[Json] = [{"name": "tmp", "emptyDir": {}}]
    if claim := checkpoint_claim(pipeline):
        found.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": claim}})
    return found
