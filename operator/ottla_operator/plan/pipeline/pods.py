"""The pods of a Pipeline, the same for every launcher: the driver's container, the executors'
template, and the ConfigMap that a driver is started with.

They meet Kubernetes' restricted security profile and write only /tmp, Spark's scratch volumes and
the checkpoint. The ConfigMap is named by its content and never changed: another pipeline is another
ConfigMap, and another driver.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan.objects.pod_defaults import PodDefaults, pull_secrets
from ottla_operator.plan.objects.pod_template_merge import apply_pod_template
from ottla_operator.plan.objects.security_context import container_security, pod_security
from ottla_operator.plan.pipeline import names, spark
from ottla_operator.resources.common import API_VERSION, parse_duration_ms
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

SETTINGS_PATH: Final = "/etc/ottla"
PIPELINE_FILE, EXECUTOR_FILE = "pipeline.json", "executor.json"
CHECKPOINT_PATH: Final = "/checkpoint"
LOGIN_PATH: Final = "/etc/ottla-login"
SECRETS_PATH: Final = "/etc/ottla-secrets"
HTTP_PORT: Final = 8080
DRIVER_CONTAINER, EXECUTOR_CONTAINER = "spark-kubernetes-driver", "spark-kubernetes-executor"
CONTAINER_IN_TEMPLATES: Final = "spark"
TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"
SPARK_CLOSE_S: Final = 15
_NOT_FOR_DRIVERS: Final = ("state", "launcher", "checkpoint", "spark", "userRef", "replaces")


@dataclass(frozen=True, slots=True)
class PipelineImage:
    """`reference`: image of Pipelines that name no other."""

    reference: str
    pull_policy: str = "IfNotPresent"
    defaults: PodDefaults = field(default_factory=PodDefaults)

    def of(self, pipeline: Pipeline) -> str:
        return pipeline.spec.spark.image or self.reference


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """A driver's connection to brokers. `secret`: Secret of the User that it logs in as, empty
    without a login. `keys`: the keys that it reads. `digest`: changes when it has to log in again.
    `registry`: URL of the schema registry, empty without one.
    """

    bootstrap: str
    secret: str = ""
    keys: tuple[str, ...] = ()
    digest: str = ""
    registry: str = ""

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of the driver's pod."""
        return {names.LOGIN: self.digest} if self.digest else {}


def runner_arguments(pipeline: Pipeline, connection: BrokerConnection, master: str) -> list[str]:
    """Arguments of `python -m ottla_spark`."""
    return [
        "run",
        *("--pipeline", f"{SETTINGS_PATH}/{PIPELINE_FILE}"),
        *("--bootstrap", connection.bootstrap),
        *(("--login", LOGIN_PATH) if connection.secret else ()),
        *(("--registry", connection.registry) if connection.registry else ()),
        *(("--secrets", SECRETS_PATH) if pipeline.secrets else ()),
        *("--checkpoint", checkpoint_path(pipeline)),
        *("--master", master),
        *("--log", "/dev/stderr"),
        *("--http", f":{HTTP_PORT}"),
        *("--termination-message", TERMINATION_MESSAGE_PATH),
    ]


def termination_grace_s(pipeline: Pipeline) -> int:
    """Seconds for the batch in flight to complete, and for Spark to close."""
    return math.ceil(parse_duration_ms(pipeline.spec.stop.graceful) / 1000) + SPARK_CLOSE_S


def driver_container(pipeline: Pipeline, connection: BrokerConnection) -> Json:
    """The driver's container without the fields that launchers add: image, arguments, resources."""
    return {
        "name": DRIVER_CONTAINER,
        "ports": [{"name": names.HTTP_PORT, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "securityContext": container_security(),
        "terminationMessagePath": TERMINATION_MESSAGE_PATH,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "pipeline", "mountPath": SETTINGS_PATH, "readOnly": True},
            *([{"name": "login", "mountPath": LOGIN_PATH, "readOnly": True}] if connection.secret else []),
            *(
                {"name": volume, "mountPath": f"{SECRETS_PATH}/{secret}", "readOnly": True}
                for volume, secret in _secret_volumes(pipeline)
            ),
            *_mounts(pipeline),
        ],
    }


def driver_volumes(pipeline: Pipeline, config_map: str, connection: BrokerConnection) -> list[Json]:
    """The volumes of the driver's pod, with its login and the Secrets of sinks and object stores:
    executors get these with their tasks.
    """
    items = [{"key": it, "path": it} for it in connection.keys]
    login = {"name": "login", "secret": {"secretName": connection.secret, "defaultMode": 0o440, "items": items}}
    logins = [login] if connection.secret else []
    secrets = [
        {"name": volume, "secret": {"secretName": secret, "defaultMode": 0o440}}
        for volume, secret in _secret_volumes(pipeline)
    ]
    return [{"name": "pipeline", "configMap": {"name": config_map}}, *logins, *secrets, *_volumes(pipeline)]


def _secret_volumes(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Names of volume and Secret. A Secret's name can be longer than a volume's."""
    return [(f"secret-{index}", name) for index, name in enumerate(pipeline.secrets)]


def executor_template(pipeline: Pipeline, defaults: PodDefaults, *, beside_driver: bool) -> Json:
    """`beside_driver`: on the driver's node, because only one node can write the checkpoint's
    volume.
    """
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(defaults),
        **pull_secrets(defaults),
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
        on_node_of_driver = {
            "labelSelector": {"matchLabels": names.selector(pipeline, names.DRIVER)},
            "topologyKey": "kubernetes.io/hostname",
        }
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [on_node_of_driver]}}
    metadata = {"labels": names.labels(pipeline, names.EXECUTOR)}
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return with_pod_template(pipeline, template, EXECUTOR_CONTAINER)


def with_pod_template(pipeline: Pipeline, pod: Json, container: str) -> Json:
    """The pod with the additions of `spec.spark.podTemplate`. `container`: the one that the
    template calls spark.
    """
    return apply_pod_template(pod, pipeline.spec.spark.pod_template, {CONTAINER_IN_TEMPLATES: container})


def checkpoint_path(pipeline: Pipeline) -> str:
    checkpoint = pipeline.spec.checkpoint
    assert checkpoint is not None
    if checkpoint.s3 is not None:
        return checkpoint.s3.url(pipeline.name)
    return checkpoint.path or CHECKPOINT_PATH


def checkpoint_claim(pipeline: Pipeline) -> str | None:
    """Name of the checkpoint's volume claim; None if it is not on one."""
    checkpoint = pipeline.spec.checkpoint
    if checkpoint is None or checkpoint.pvc is None:
        return None
    return checkpoint.pvc.claim_name or names.claim(pipeline)


def _mounts(pipeline: Pipeline) -> list[Json]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    if checkpoint_claim(pipeline):
        mounts.append({"name": "checkpoint", "mountPath": CHECKPOINT_PATH})
    return mounts


def _volumes(pipeline: Pipeline) -> list[Json]:
    volumes: list[Json] = [{"name": "tmp", "emptyDir": {}}]
    if claim := checkpoint_claim(pipeline):
        volumes.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": claim}})
    return volumes


def config_map(pipeline: Pipeline, executor: Json) -> Json:
    """`executor`: the executors' pod template."""
    data = {PIPELINE_FILE: _format_json(_driver_resource(pipeline)), EXECUTOR_FILE: _format_json(executor)}
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(pipeline, names.config_map(pipeline, digest)),
        "immutable": True,
        "data": data,
    }


def _driver_resource(pipeline: Pipeline) -> Json:
    """The Pipeline without the fields that the operator acts on, so that suspending and resuming it
    changes nothing.
    """
    kept = {key: value for key, value in pipeline.spec.to_json().items() if key not in _NOT_FOR_DRIVERS}
    if (checkpoint := pipeline.spec.checkpoint) is not None and checkpoint.s3 is not None:
        kept["checkpoint"] = checkpoint.to_json()
    return {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": pipeline.name, "namespace": pipeline.metadata.namespace},
        "spec": {**kept, "spark": {"conf": spark.complete_conf(pipeline)}},
    }


def _format_json(value: Json) -> str:
    """JSON, which is YAML too."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
