"""The driver as a Deployment: the runner in Spark's client mode, which creates its executors
itself.

One pod at a time (Recreate): two drivers on one checkpoint would undo each other's work. Executors
reach the driver by its pod's IP address: they live no longer than it, and a name could still
resolve to the previous driver.
"""

from typing import Final

from ottla_operator.plan.objects.pod_defaults import pull_secrets
from ottla_operator.plan.objects.security_context import pod_security
from ottla_operator.plan.pipeline import names, pods, spark
from ottla_operator.plan.pipeline.pods import BrokerConnection, PipelineImage
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

START_TIMEOUT_S: Final = 300


def deployment(
    pipeline: Pipeline, image: PipelineImage, connection: BrokerConnection, config_map: str, *, is_finished: bool
) -> Json:
    """The Deployment of a driver. `is_finished`: the driver has read all records and must not run
    again.
    """
    runs = pipeline.spec.state != "suspended" and not is_finished
    annotations = {names.FINISHED: config_map} if is_finished else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(
            pipeline, names.driver(pipeline), component=names.DRIVER, annotations=annotations or None
        ),
        "spec": {
            "replicas": 1 if runs else 0,
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": names.selector(pipeline, names.DRIVER)},
            "template": pods.with_pod_template(
                pipeline, _template(pipeline, image, connection, config_map), pods.DRIVER_CONTAINER
            ),
        },
    }


def _template(pipeline: Pipeline, image: PipelineImage, connection: BrokerConnection, config_map: str) -> Json:
    annotations = {"annotations": connection.annotations} if connection.annotations else {}
    return {
        "metadata": {"labels": names.labels(pipeline, names.DRIVER), **annotations},
        "spec": {
            "serviceAccountName": names.driver(pipeline),
            "terminationGracePeriodSeconds": pods.termination_grace_s(pipeline),
            "enableServiceLinks": False,
            "securityContext": pod_security(image.defaults),
            **pull_secrets(image.defaults),
            "containers": [_container(pipeline, image, connection)],
            "volumes": pods.driver_volumes(pipeline, config_map, connection),
        },
    }


def _container(pipeline: Pipeline, image: PipelineImage, connection: BrokerConnection) -> Json:
    size = spark.driver_size(pipeline)
    http = {"port": names.HTTP_PORT}
    return {
        **pods.driver_container(pipeline, connection),
        "image": image.of(pipeline),
        "imagePullPolicy": image.pull_policy,
        "args": [*pods.runner_arguments(pipeline, connection, spark.MASTER), "--keep-serving", *_conf(pipeline, image)],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
            for name, path in (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP"))
        ],
        "startupProbe": {
            "httpGet": {"path": "/readyz", **http},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": START_TIMEOUT_S // 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/livez", **http},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", **http}, "periodSeconds": 2, "timeoutSeconds": 5},
        "resources": {
            "requests": {"cpu": size.cpu, "memory": size.memory},
            "limits": {"memory": size.memory},
        },
    }


def _conf(pipeline: Pipeline, image: PipelineImage) -> list[str]:
    """Spark settings that only the driver's pod knows, or that the operator sets."""
    conf = {
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.namespace": pipeline.metadata.namespace,
        "spark.kubernetes.container.image": image.of(pipeline),
        "spark.kubernetes.container.image.pullPolicy": image.pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{pods.SETTINGS_PATH}/{pods.EXECUTOR_FILE}",
        "spark.kubernetes.executor.podTemplateContainerName": pods.EXECUTOR_CONTAINER,
    }
    return [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
