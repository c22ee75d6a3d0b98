"""Pipelines on Kubernetes: a driver as a Deployment, or a SparkApplication of Kubeflow's Spark
operator.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import aiohttp

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CLAIM, CONFIG_MAP, DEPLOYMENT, POD, SPARK_APPLICATION, kind_of
from ottla_operator.kube.owned_objects import OwnedObjects, is_managed
from ottla_operator.kube.status_writer import EventRecorder
from ottla_operator.plan.conditions import Reconciling, Stalled
from ottla_operator.plan.listener_security import describe_missing_open_listener
from ottla_operator.plan.objects.differences import find_difference, with_applied_hash
from ottla_operator.plan.objects.services import in_cluster_bootstrap, in_cluster_registry
from ottla_operator.plan.observed_pods import driver_pods, executor_pods
from ottla_operator.plan.pipeline import names
from ottla_operator.plan.pipeline.desired import DesiredLaunch, Launcher, LaunchInputs, choose_launcher, desired_objects
from ottla_operator.plan.pipeline.pods import BrokerConnection, PipelineImage
from ottla_operator.plan.pipeline.status import (
    PipelineObservations,
    PipelineRun,
    RunnerStatus,
    evaluate_application,
    evaluate_driver,
)
from ottla_operator.reconcile.component_users import ComponentLogin
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

DELETION_RETRY_S: Final = 0.5
DISCOVERY_TTL_S: Final = 20.0
RUNNER_TIMEOUT_S: Final = 2.0
MAX_ANSWER_BYTES: Final = 64 * 1024
ENDED_STATES: Final = ("COMPLETED", "FAILED")
APPLICATION_KINDS: Final[Mapping[Launcher, str]] = {"Driver": "Deployment", "SparkOperator": "SparkApplication"}
log = logging.getLogger("ottla.operator")


async def read_runner_status(address: str) -> RunnerStatus | None:
    """Requests the status of a driver. `address`: host:port. None if it does not report one."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=RUNNER_TIMEOUT_S)) as session,
            session.get(f"http://{address}/status", allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                return None
            return RunnerStatus.parse(json.loads(await answer.content.read(MAX_ANSWER_BYTES)))
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        log.debug("the driver at %s does not report its status: %s", address, error or type(error).__name__)
        return None


class PipelineLauncher:
    """`read_runner_status`: asks the driver at host:port for its status; None if it
    does not respond."""

    def __init__(
        self,
        api: ApiClient,
        events: EventRecorder,
        image: PipelineImage,
        read_runner_status: Callable[[str], Awaitable[RunnerStatus | None]] = read_runner_status,
    ) -> None:
        self.api = api
        self.events = events
        self.image = image
        self.read_runner_status = read_runner_status
        self.objects = OwnedObjects(api)
        self._spark_operator: tuple[float, bool] | None = None
        """The time at which the API server was last asked whether it serves SparkApplications, and
        the answer."""

    async def plan(
        self, resource: Json, pipeline: Pipeline, cluster: Cluster, login: ComponentLogin | None
    ) -> "PodLaunch":
        """See `Platform.plan_launch`. First deletes the Deployment or SparkApplication of another
        launcher.
        """
        connection = _connection(pipeline, cluster, login)
        has_spark_operator = await self._has_spark_operator()
        existing = await self._find_applications(pipeline, has_spark_operator)
        managed = {launcher: it for launcher, it in existing.items() if is_managed(it)}
        launcher = choose_launcher(pipeline, managed.keys(), has_spark_operator=has_spark_operator)
        if launcher == "SparkOperator" and not has_spark_operator:
            message = (
                "the API server does not know SparkApplications: install Kubeflow's Spark operator, or set launcher: "
                "Driver, with which this operator runs the driver itself"
            )
            raise Blocked(Stalled("SparkOperatorNotFound", message))
        pods = await self.api.list(POD, pipeline.metadata.namespace, names.selector_text(pipeline))
        await self._stop_other_launcher(pipeline, launcher, managed, pods)
        live = existing.get(launcher)
        inputs = await self._inputs(pipeline, launcher, connection, live)
        desired = desired_objects(pipeline, self.image, inputs)
        return PodLaunch(self, resource, pipeline, inputs, desired, live, pods)

    async def _has_spark_operator(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._spark_operator is None or now - self._spark_operator[0] > DISCOVERY_TTL_S:
            self._spark_operator = now, await self.api.serves(SPARK_APPLICATION)
        return self._spark_operator[1]

    async def _find_applications(self, pipeline: Pipeline, has_spark_operator: bool) -> dict[Launcher, Json]:
        """Objects with the names that the launchers use, of any owner."""
        namespace = pipeline.metadata.namespace
        found: dict[Launcher, Json] = {}
        if deployment := await self.api.get(DEPLOYMENT, namespace, names.driver(pipeline)):
            found["Driver"] = deployment
        name = names.application(pipeline)
        if has_spark_operator and (application := await self.api.get(SPARK_APPLICATION, namespace, name)):
            found["SparkOperator"] = application
        return found

    async def _stop_other_launcher(
        self, pipeline: Pipeline, launcher: Launcher, managed: Mapping[Launcher, Json], pods: list[Json]
    ) -> None:
        """Deletes the object of another launcher first, because two drivers on one checkpoint undo
        each other's work. Raises Blocked while such an object, or a pod of a previous driver,
        exists.
        """
        for other, application in managed.items():
            if other != launcher:
                await self.delete(application)
                raise _changing_launcher(f"{application['kind']} {application['metadata']['name']}")
        drivers = driver_pods(pods)
        if launcher not in managed and drivers and pipeline.spec.state != "suspended":
            raise _changing_launcher(f"pod {drivers[0].name} of a previous driver")

    async def _inputs(
        self, pipeline: Pipeline, launcher: Launcher, connection: BrokerConnection, live: Json | None
    ) -> LaunchInputs:
        finished = ((live or {}).get("metadata", {}).get("annotations") or {}).get(names.FINISHED, "")
        modes: list[str] = []
        checkpoint = pipeline.spec.checkpoint
        if checkpoint and checkpoint.pvc and checkpoint.pvc.claim_name:
            claim = await self.api.get(CLAIM, pipeline.metadata.namespace, checkpoint.pvc.claim_name)
            modes = ((claim or {}).get("spec") or {}).get("accessModes") or []
        return LaunchInputs(launcher, connection, modes, finished)

    async def delete(self, application: Json) -> None:
        if "deletionTimestamp" not in application["metadata"]:
            await self.api.delete(kind_of(application), application)


@dataclass(slots=True)
class PodLaunch:
    """See `reconcile.platform.Launch`. `live`: the Deployment or SparkApplication; None before it
    is created.
    """

    launcher: PipelineLauncher
    resource: Json
    pipeline: Pipeline
    inputs: LaunchInputs
    desired: DesiredLaunch
    live: Json | None
    pods: list[Json]

    @property
    def application(self) -> str:
        return f"{APPLICATION_KINDS[self.inputs.launcher]}/{self.desired.application['metadata']['name']}"

    @property
    def starts_driver(self) -> bool:
        if not self._wants_driver:
            return False
        return find_difference(with_applied_hash(self.desired.application), self.live) is not None

    @property
    def _wants_driver(self) -> bool:
        """False for a Pipeline that is suspended, or whose Deployment has finished."""
        return not self._is_suspended and self.desired.application["spec"].get("replicas") != 0

    @property
    def _is_suspended(self) -> bool:
        return self.pipeline.spec.state == "suspended"

    async def apply(self) -> PipelineRun:
        live = await self._apply()
        observed = PipelineObservations(
            settings=self.desired.settings,
            is_suspended=self._is_suspended,
            drivers=driver_pods(self.pods),
            executors=executor_pods(self.pods),
            is_finished=(live["metadata"].get("annotations") or {}).get(names.FINISHED) == self.desired.settings,
            application=live,
        )
        driver = observed.driver
        if driver is not None and driver.address:
            observed = replace(observed, runner=await self.launcher.read_runner_status(driver.address))
        if self.inputs.launcher == "SparkOperator":
            return evaluate_application(observed)
        has_completed = observed.runner is not None and observed.runner.state == "finished"
        if has_completed and not observed.is_finished and not self._is_suspended:
            # Recorded on the Deployment, so that neither Kubernetes nor another operator starts the
            # driver again.
            inputs = replace(self.inputs, finished=self.desired.settings)
            finished = desired_objects(self.pipeline, self.launcher.image, inputs)
            await self.launcher.objects.apply(finished.application, live)
            observed = replace(observed, is_finished=True)
        return evaluate_driver(observed)

    async def _apply(self) -> Json:
        """Applies all objects. Returns the resulting Deployment or SparkApplication."""
        objects, live = self.launcher.objects, self.live
        for prerequisite in self.desired.prerequisites:
            await objects.apply(prerequisite, await objects.find(prerequisite))
        if live is not None and self._is_suspended and _has_ended(live):
            await self.launcher.delete(live)  # it would never run again: it is replaced by one that can be resumed
            live = None
        after = await objects.apply(self.desired.application, live)
        if self._wants_driver and (live is None or _driver_spec(live) != _driver_spec(after)):
            message = (
                f"{after['kind']} {after['metadata']['name']} runs the driver with ConfigMap {self.desired.settings}"
            )
            await self.launcher.events.record(self.resource, "DriverLaunched", message)
        await self._delete_unused_config()
        return after

    async def _delete_unused_config(self) -> None:
        """Deletes ConfigMaps that no driver will be started with again."""
        prefix, namespace = names.config_map(self.pipeline, ""), self.pipeline.metadata.namespace
        for config_map in await self.launcher.api.list(CONFIG_MAP, namespace, names.selector_text(self.pipeline)):
            name = config_map["metadata"]["name"]
            if is_managed(config_map) and name.startswith(prefix) and name != self.desired.settings:
                await self.launcher.api.delete(CONFIG_MAP, config_map)


def _connection(pipeline: Pipeline, cluster: Cluster, login: ComponentLogin | None) -> BrokerConnection:
    """Raises Blocked if there is no login and the cluster has no listener for clients without
    one."""
    registry = in_cluster_registry(cluster) if pipeline.uses_registry else ""
    if login is not None:
        return BrokerConnection(login.bootstrap, login.secret, login.keys, login.digest, registry)
    if not (bootstrap := in_cluster_bootstrap(cluster)):
        raise Blocked(Stalled("NoPlaintextListener", describe_missing_open_listener(cluster)))
    return BrokerConnection(bootstrap, registry=registry)


def _changing_launcher(running: str) -> Blocked:
    return Blocked(Reconciling("ChangingLauncher", f"waiting for the deletion of {running}"), DELETION_RETRY_S)


def _has_ended(application: Json) -> bool:
    """True for a SparkApplication that has ended."""
    return ((application.get("status") or {}).get("applicationState") or {}).get("state") in ENDED_STATES


def _driver_spec(application: Json) -> object:
    """Fields whose change starts another driver. Of a SparkApplication `image` and others do so
    too, but are not compared.
    """
    spec = application["spec"]
    return (spec.get("template"), spec.get("replicas"), spec.get("driver"), spec.get("arguments"), spec.get("suspend"))
