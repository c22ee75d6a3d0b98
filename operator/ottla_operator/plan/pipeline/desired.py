"""All objects of a Pipeline together, who launches it, and what about a Pipeline Kubernetes cannot fulfil."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from ottla_operator.plan.objects import names as cluster_names
from ottla_operator.plan.objects.services import is_external
from ottla_operator.plan.pipeline import access, pods, spark
from ottla_operator.plan.pipeline.driver import deployment
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.pipeline.settings import config_map
from ottla_operator.plan.pipeline.spark_application import spark_application
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

Launcher = Literal["SparkOperator", "Driver"]
SHARED: Final = "ReadWriteMany"
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class LaunchInputs:
    """What there is already. `bootstrap`: host:port. `claim_modes`: access modes of the checkpoint's volume claim, where that is not of our making.
    `finished`: ConfigMap of a pipeline that has ended as it should."""

    launcher: Launcher
    bootstrap: str
    claim_modes: Collection[str] = ()
    finished: str = ""


@dataclass(frozen=True, slots=True)
class DesiredLaunch:
    """`first`: what a driver needs before it is made. `application`: the Deployment or the SparkApplication."""

    prerequisites: tuple[Json, ...]
    application: Json
    settings: str

    @property
    def all(self) -> tuple[Json, ...]:
        return (*self.prerequisites, self.application)


def desired_objects(pipeline: Pipeline, image: PipelineImage, given: LaunchInputs) -> DesiredLaunch:
    """`unfit(pipeline)` must be empty."""
    on_a_claim = pods.checkpoint_claim(pipeline) is not None
    executor = pods.executor_template(pipeline, beside_driver=on_a_claim and SHARED not in given.claim_modes)
    settings = config_map(pipeline, executor)
    name = settings["metadata"]["name"]
    claim = access.claim(pipeline)
    first = (
        access.service_account(pipeline),
        access.role(pipeline),
        access.role_binding(pipeline),
        *((claim,) if claim else ()),
        settings,
    )
    if given.launcher == "Driver":
        finished = given.finished == name and pipeline.spec.state != "suspended"
        application = deployment(pipeline, image, given.bootstrap, name, finished=finished)
    else:
        application = spark_application(pipeline, image, given.bootstrap, name, executor)
    return DesiredLaunch(first, application, name)


def choose_launcher(pipeline: Pipeline, there: Collection[Launcher], *, served: bool) -> Launcher:
    """`there`: who has launched it already; without a wish, that stays. `served`: whether the API server knows SparkApplications."""
    if pipeline.spec.launcher is not None:
        return pipeline.spec.launcher
    if len(there) == 1:
        (it,) = there
        return it
    return "SparkOperator" if served else "Driver"


def plaintext_bootstrap(cluster: Cluster, *, tls: bool = False) -> str:
    """Where a client of the same Kubernetes cluster begins, with TLS or without: a listener inside, if there is one. Empty when no listener is such."""
    such = [it for it in cluster.listeners if bool(it.tls) is tls]
    if not such:
        return ""
    listener = next((it for it in such if not is_external(it)), such[0])
    service = cluster_names.bootstrap_service(cluster, listener)
    return f"{cluster_names.service_host(cluster, service)}:{listener.port}"


def find_unsupported(pipeline: Pipeline) -> str:
    """Why Kubernetes cannot have this Pipeline, in words; empty when it can."""
    if not _NAME.fullmatch(pipeline.name):
        return (
            f"metadata.name: {pipeline.name!r} cannot begin the names of pods: it takes a small letter first, then small letters, digits and '-', "
            "at most 40 in all"
        )
    return _unfit_checkpoint(pipeline) or _unfit_files(pipeline) or spark.find_invalid_conf(pipeline)


def _unfit_checkpoint(pipeline: Pipeline) -> str:
    checkpoint = pipeline.spec.checkpoint
    if checkpoint is None:
        return (
            "spec.checkpoint is missing: pods keep nothing, so say where the pipeline keeps how far it is, "
            "for example checkpoint: {pvc: {size: 1Gi}}"
        )
    if checkpoint.s3 is not None:
        return (
            "spec.checkpoint.s3 is not built yet: use pvc, or a path such as s3a://bucket/folder with an image and spark.conf of your own "
            "that know the store"
        )
    if checkpoint.path is not None and "://" not in checkpoint.path:
        return (
            f"spec.checkpoint.path: {checkpoint.path!r} would be gone with the pod: give a URL, or pvc: {{size: 1Gi}}"
        )
    return ""


def _unfit_files(pipeline: Pipeline) -> str:
    for index, step in enumerate(pipeline.spec.transforms or ()):
        if step.python is not None and not step.python.startswith("/"):
            return (
                f"spec.transforms[{index}].python: {step.python!r}: there is no folder beside the pipeline here: put the file in the image "
                "(spec.spark.image) and give its whole path, such as /app/late.py:late"
            )
    for index, sink in enumerate(pipeline.spec.sinks):
        if sink.parquet is not None and "://" not in sink.parquet.path:
            return f"spec.sinks[{index}].parquet.path: {sink.parquet.path!r} would be gone with the pod: give a URL"
    return ""
