"""All desired objects of a Pipeline, the choice of its launcher, and the features that Kubernetes
cannot run.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from ottla_operator.plan.objects.names import find_invalid_prefix
from ottla_operator.plan.pipeline import names, pods, spark
from ottla_operator.plan.pipeline.driver import deployment
from ottla_operator.plan.pipeline.network_policy import network_policy
from ottla_operator.plan.pipeline.pods import BrokerConnection, PipelineImage
from ottla_operator.plan.pipeline.spark_application import spark_application
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.sinks import Sink

Launcher = Literal["SparkOperator", "Driver"]
READ_WRITE_MANY: Final = "ReadWriteMany"
RBAC: Final = "rbac.authorization.k8s.io"
DRIVER_RULES: Final[tuple[Json, ...]] = (
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["create", "get", "list", "watch", "patch", "delete", "deletecollection"],
    },
    {
        "apiGroups": [""],
        "resources": ["services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "delete", "deletecollection"],
    },
)
"""A driver creates, watches and deletes its executors' pods and what Spark creates around them. The
operator needs these rights itself, because a right can only be granted by one who has it."""


@dataclass(frozen=True, slots=True)
class LaunchInputs:
    """Inputs of the plan besides the Pipeline. `claim_modes`: access modes of the checkpoint's
    volume claim, if the operator has not created it. `finished`: name of the ConfigMap with which a
    driver has completed; empty if none has.
    """

    launcher: Launcher
    connection: BrokerConnection
    claim_modes: Collection[str] = ()
    finished: str = ""


@dataclass(frozen=True, slots=True)
class DesiredLaunch:
    """`prerequisites`: objects that must exist before the driver. `application`: the Deployment or
    SparkApplication. `settings`: name of the ConfigMap.
    """

    prerequisites: tuple[Json, ...]
    application: Json
    settings: str

    @property
    def all(self) -> tuple[Json, ...]:
        return (*self.prerequisites, self.application)


def desired_objects(pipeline: Pipeline, image: PipelineImage, inputs: LaunchInputs) -> DesiredLaunch:
    """`find_unsupported(pipeline)` must be empty."""
    has_claim = pods.checkpoint_claim(pipeline) is not None
    beside_driver = has_claim and READ_WRITE_MANY not in inputs.claim_modes
    executor = pods.executor_template(pipeline, image.defaults, beside_driver=beside_driver)
    config = pods.config_map(pipeline, executor)
    name = config["metadata"]["name"]
    claim = _checkpoint_claim(pipeline)
    prerequisites = (*_access(pipeline), network_policy(pipeline), *((claim,) if claim else ()), config)
    if inputs.launcher == "Driver":
        is_finished = inputs.finished == name and pipeline.spec.state != "suspended"
        application = deployment(pipeline, image, inputs.connection, name, is_finished=is_finished)
    else:
        application = spark_application(pipeline, image, inputs.connection, name, executor)
    return DesiredLaunch(prerequisites, application, name)


def choose_launcher(pipeline: Pipeline, existing: Collection[Launcher], *, has_spark_operator: bool) -> Launcher:
    """Chooses the launcher. Unless the spec names one, a running Pipeline keeps its launcher.
    `existing`: launchers that run it already. `has_spark_operator`: the API server has the CRD of
    SparkApplications.
    """
    if pipeline.spec.launcher is not None:
        return pipeline.spec.launcher
    if len(existing) == 1:
        (running,) = existing
        return running
    return "SparkOperator" if has_spark_operator else "Driver"


def find_unsupported(pipeline: Pipeline) -> str:
    """The reason why Kubernetes cannot run this Pipeline; empty if it can."""
    return (
        find_invalid_prefix(pipeline.name, "pod")
        or _unsupported_checkpoint(pipeline)
        or _unsupported_files(pipeline)
        or spark.find_invalid_conf(pipeline)
    )


def _unsupported_checkpoint(pipeline: Pipeline) -> str:
    checkpoint = pipeline.spec.checkpoint
    if checkpoint is None:
        return "spec.checkpoint is missing: pods keep nothing; set for example checkpoint: {pvc: {size: 1Gi}}"
    if checkpoint.path is not None and "://" not in checkpoint.path:
        return f"spec.checkpoint.path: {checkpoint.path!r} is lost with the pod: use a URL, or pvc: {{size: 1Gi}}"
    return ""


def _unsupported_files(pipeline: Pipeline) -> str:
    for field, reference in pipeline.spec.python_references.items():
        if not reference.startswith("/"):
            return (
                f"spec.{field}: {reference!r} is a relative path: put the file into the image "
                "(spec.spark.image) and use its absolute path, such as /app/late.py:late"
            )
    for index, sink in enumerate(pipeline.spec.sinks):
        for field, path in _sink_paths(sink):
            return f"spec.sinks[{index}].{field}: {path!r} is lost with the pod: use a URL"
    return ""


def _sink_paths(sink: Sink) -> Iterator[tuple[str, str]]:
    """Fields that are paths of the pod's file system, with their values."""
    if sink.parquet is not None and "://" not in sink.parquet.path:
        yield "parquet.path", sink.parquet.path
    if sink.delta is not None and "://" not in sink.delta.path:
        yield "delta.path", sink.delta.path
    if (sink.parquet or sink.delta) and sink.compare_with is not None and "://" not in sink.compare_with:
        yield "compareWith", sink.compare_with
    if sink.iceberg is not None and (catalog := sink.iceberg.catalog) is not None:
        if catalog.type != "rest" and catalog.warehouse is not None and "://" not in catalog.warehouse:
            yield "iceberg.catalog.warehouse", catalog.warehouse
        if catalog.uri is not None and catalog.uri.startswith("jdbc:sqlite:"):
            yield "iceberg.catalog.uri", catalog.uri


def _access(pipeline: Pipeline) -> tuple[Json, Json, Json]:
    """The driver's ServiceAccount, Role and RoleBinding."""
    name = names.driver(pipeline)
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": names.metadata(pipeline, name),
        "rules": [dict(it) for it in DRIVER_RULES],
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": names.metadata(pipeline, name),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": pipeline.metadata.namespace}],
    }
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": names.metadata(pipeline, name)}, role, binding


def _checkpoint_claim(pipeline: Pipeline) -> Json | None:
    """The checkpoint's volume claim, where the operator creates it. It stays when the Pipeline is
    deleted: the position in the sources belongs to the data. One node can write it, which every
    storage class supports.
    """
    checkpoint = pipeline.spec.checkpoint
    if checkpoint is None or checkpoint.pvc is None or checkpoint.pvc.size is None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": names.metadata(pipeline, names.claim(pipeline), is_owned=False),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": checkpoint.pvc.size}},
        },
    }
