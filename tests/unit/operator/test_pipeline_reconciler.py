"""Reconciles of a Pipeline on Kubernetes: what it waits for, what is created, left alone and
deleted, and reported.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.kinds import CLAIM, DEPLOYMENT, PIPELINE, POD, TOPIC
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.objects.pods import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.pipeline.status import RunnerStatus
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "hourly")
TERMINATED = {"exitCode": 1, "message": "noise\npipeline hourly: the topic flights does not exist\n", "reason": "Error"}


class World:
    """One operator, which another may replace at any time, and the runner that it asks. `runner`:
    its answer.
    """

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.runner: RunnerStatus | None = None
        self.start_another_operator()

    def start_another_operator(self) -> None:
        as_api, cache = cast(ApiClient, self.api), WatchCache()
        platform = KubePlatform(as_api, cache, "test", BrokerImages("broker", "1"), PipelineImage("spark:1"))
        platform.pipelines.ask_runner = self._ask_runner
        self.controller = Controller(platform, cache)

    async def _ask_runner(self, address: str) -> RunnerStatus | None:
        assert address == "10.0.0.9:8080"
        return self.runner

    def reconcile(self) -> list[str]:
        """Returns the writes."""
        self.controller.cache.topics.clear()
        for it in [it for kind in ("Cluster", "Topic", "Pipeline") for it in self.api.of(kind).values()]:
            self.controller.update(it)
        before = len(self.api.writes)
        asyncio.run(self.controller.pipelines.reconcile(KEY))
        return self.api.writes[before:]

    @property
    def pipeline(self) -> Json:
        return self.api.of("Pipeline")["hourly"]

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        return {it["type"]: it for it in self.pipeline["status"]["conditions"]}

    def edit(self, **spec: Any) -> None:
        self.pipeline["spec"] = {**self.pipeline["spec"], **spec}
        self.pipeline["metadata"]["generation"] += 1

    def topic(self, name: str, ready: bool = True) -> None:
        condition = {"type": "Ready", "status": str(ready), "message": "creating topic flights"}
        metadata = {"name": name, "namespace": "events", "generation": 1}
        it = {"apiVersion": TOPIC.api, "kind": "Topic", "metadata": metadata, "spec": {"clusterRef": {"name": "demo"}}}
        self.api.put(TOPIC, {**it, "status": {"conditions": [condition]}})

    # What Kubernetes and the kubelet do.

    @property
    def deployment(self) -> Json:
        return self.api.of("Deployment")["hourly-driver"]

    def pod(self, *, ready: bool = False, template: Json | None = None, **container: Any) -> None:
        """Creates the driver's pod. `template`: None: that of the Deployment."""
        template = template or self.deployment["spec"]["template"]
        status = {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "driver", **container}],
        }
        metadata = {**template["metadata"], "name": "hourly-driver-x", "namespace": "events"}
        self.api.objects.pop(("Pod", "events", "hourly-driver-x"), None)
        self.api.put(POD, {"metadata": metadata, "spec": template["spec"], "status": status})

    def delete_pod(self) -> None:
        del self.api.objects["Pod", "events", "hourly-driver-x"]

    def application(self, state: str, **status: Any) -> None:
        """Sets the status as the Spark operator does."""
        it = self.api.of("SparkApplication")["hourly"]
        it["status"] = {"applicationState": {"state": state, **status.pop("app", {})}, **status}


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi(unserved={"SparkApplication"})
    made.cluster({"replicas": 1, "storage": {"size": "1Gi"}})
    it = samples.pipeline(checkpoint={"pvc": {"size": "1Gi"}})
    metadata = {"name": "hourly", "namespace": "events", "generation": 1}
    made.put(PIPELINE, {**it, "metadata": metadata, "status": {}})
    return made


@pytest.fixture
def world(api: FakeApi) -> World:
    made = World(api)
    made.topic("flights")
    return made


def running(lag: int = 7) -> RunnerStatus:
    return RunnerStatus("running", None, "2026-01-01T00:00:00Z", 5.0, lag, 1.5)


def test_converged_objects_are_not_written_again(api: FakeApi, world: World) -> None:
    made = world.reconcile()
    assert made[-2:] == ["apply Deployment hourly-driver", "status Pipeline hourly"]
    assert world.pipeline["status"]["application"] == "Deployment/hourly-driver"
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Starting", "InProgress")
    assert world.reconcile() == []
    world.start_another_operator()
    assert world.reconcile() == [], "nor by another operator"


def test_a_running_pipeline_reports_its_progress(world: World) -> None:
    world.reconcile()
    world.pod(ready=True)
    world.runner = running()
    world.reconcile()
    status = world.pipeline["status"]
    assert (status["state"], kstatus(world.pipeline)) == ("Running", "Current")
    assert (status["lagRecords"], status["lagSeconds"], status["inputRowsPerSecond"]) == (7, 1.5, 5.0)
    assert status["lastProgress"] == "2026-01-01T00:00:00Z" and "lastError" not in status
    assert world.reconcile() == []


@pytest.mark.parametrize(
    ("ready", "why"),
    [(False, ("Topic flights is not ready: creating topic flights")), (None, "no broker of Cluster demo is ready")],
)
def test_a_driver_is_not_started_before_its_source_topics_are_ready(
    api: FakeApi, world: World, ready: bool | None, why: str
) -> None:
    if ready is None:
        del api.objects["Topic", "events", "flights"]
    else:
        world.topic("flights", ready=False)
    world.reconcile()
    assert not api.of("Deployment")
    assert world.conditions["Ready"]["reason"] == "WaitingForTopics"
    assert world.conditions["Ready"]["message"] == f"the driver is not started: topic flights: {why}"
    assert world.conditions["TopicsReady"]["status"] == "False"
    world.topic("flights")
    world.reconcile()
    assert api.of("Deployment") and world.conditions["TopicsReady"]["status"] == "True"


def test_a_running_driver_is_left_alone_while_a_topic_is_not_ready(api: FakeApi, world: World) -> None:
    world.reconcile()
    world.pod(ready=True)
    world.runner = running()
    world.reconcile()
    world.topic("flights", ready=False)
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 1
    assert (kstatus(world.pipeline), world.conditions["TopicsReady"]["status"]) == ("Current", "False")
    before = dict(world.deployment)
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    world.reconcile()
    assert world.deployment == before, "another driver could not start: the running one stays"
    assert world.conditions["Ready"]["reason"] == "WaitingForTopics"


def test_a_pipeline_is_suspended_and_resumed(world: World) -> None:
    world.reconcile()
    world.pod(ready=True)
    world.edit(state="suspended")
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 0 and kstatus(world.pipeline) == "InProgress"
    world.delete_pod()
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Suspended", "Current")
    world.edit(state="running")
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 1 and kstatus(world.pipeline) == "InProgress"


def test_a_completed_pipeline_is_not_started_again(api: FakeApi, world: World) -> None:
    world.edit(trigger={"availableNow": True})
    world.reconcile()
    world.pod(ready=True)
    world.runner = RunnerStatus("finished", None, "2026-01-01T00:00:00Z", 5.0, 0, 0.0)
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 0
    world.delete_pod()
    world.start_another_operator()
    world.runner = None
    world.reconcile()
    assert world.reconcile() == []
    assert (world.pipeline["status"]["state"], world.conditions["Ready"]["reason"]) == ("Finished", "Completed")
    assert kstatus(world.pipeline) == "Current" and world.pipeline["status"]["lagRecords"] == 0
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 1, "another pipeline has read nothing yet"


def test_a_completed_pipeline_that_is_suspended_and_resumed_runs_again(world: World) -> None:
    world.edit(trigger={"availableNow": True})
    world.reconcile()
    world.pod(ready=True)
    world.runner = RunnerStatus("finished")
    world.reconcile()
    world.delete_pod()
    for state, replicas in (("suspended", 0), ("running", 1)):
        world.edit(state=state)
        world.reconcile()
        assert world.deployment["spec"]["replicas"] == replicas


def test_a_driver_that_fails_again_and_again_stalls_the_pipeline(world: World) -> None:
    world.reconcile()
    world.pod(restartCount=1, lastState={"terminated": TERMINATED}, state={"running": {}})
    world.reconcile()
    status = world.pipeline["status"]
    assert (status["state"], status["restarts"], kstatus(world.pipeline)) == ("Failing", 1, "InProgress")
    assert status["lastError"] == "pipeline hourly: the topic flights does not exist"
    world.pod(restartCount=3, lastState={"terminated": TERMINATED}, state={"waiting": {"reason": "CrashLoopBackOff"}})
    world.reconcile()
    assert world.conditions["Stalled"]["message"].endswith("3 times: pipeline hourly: the topic flights does not exist")
    world.pod(ready=True, restartCount=4, lastState={"terminated": TERMINATED})
    world.runner = running()
    world.reconcile()
    assert kstatus(world.pipeline) == "Current" and world.pipeline["status"]["lastError"], "the last error stays"
    world.pod(restartCount=1, state={"terminated": {**TERMINATED, "exitCode": 2}})
    world.runner = None
    world.reconcile()
    assert (world.pipeline["status"]["state"], world.conditions["Stalled"]["reason"]) == ("Failed", "InvalidPipeline")


def test_an_image_that_cannot_be_pulled_stalls_the_pipeline(world: World) -> None:
    world.reconcile()
    world.pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image spark:1"}})
    world.reconcile()
    assert world.conditions["Stalled"]["message"] == "ImagePullBackOff: no such image spark:1"


def test_executors_that_cannot_be_scheduled_are_reported(api: FakeApi, world: World) -> None:
    world.reconcile()
    world.pod(ready=True)
    world.runner = running()
    labels = {**world.deployment["metadata"]["labels"], "app.kubernetes.io/component": "pipeline-executor"}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: cpu"}
    metadata = {"name": "hourly-exec-1", "namespace": "events", "labels": labels}
    status: Json = {"phase": "Pending", "conditions": [condition]}
    api.put(POD, {"metadata": metadata, "spec": {"containers": []}, "status": status})
    world.reconcile()
    assert world.conditions["Ready"]["message"] == "no executor is running: Unschedulable: 0/1 nodes: cpu"
    status |= {"phase": "Running", "conditions": []}
    world.reconcile()
    assert kstatus(world.pipeline) == "Current"


def test_a_driver_of_an_older_spec_is_not_taken_for_the_current_one(api: FakeApi, world: World) -> None:
    world.reconcile()
    old = world.deployment["spec"]["template"]
    world.pod(ready=True)
    world.runner = running()
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    writes = world.reconcile()
    assert [it for it in writes if it.startswith("delete ConfigMap hourly-pipeline-")]
    world.pod(ready=True, template=old)
    world.reconcile()
    assert (
        kstatus(world.pipeline) == "InProgress"
        and "waiting for the previous driver to stop" in world.conditions["Ready"]["message"]
    )


def test_the_status_of_a_spark_application_becomes_that_of_the_pipeline(api: FakeApi, world: World) -> None:
    api.unserved.clear()
    assert "apply SparkApplication hourly" in world.reconcile()
    assert not api.of("Deployment") and world.pipeline["status"]["application"] == "SparkApplication/hourly"
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Pending", "InProgress")
    world.application("SUBMITTED", executionAttempts=1)
    world.reconcile()
    assert world.pipeline["status"]["state"] == "Starting"
    world.pod(ready=True, template=api.of("SparkApplication")["hourly"]["spec"]["driver"]["template"])
    world.application("RUNNING", executionAttempts=2)
    world.runner = running()
    world.reconcile()
    status = world.pipeline["status"]
    assert (status["state"], status["restarts"], status["lagRecords"], kstatus(world.pipeline)) == (
        "Running",
        1,
        7,
        "Current",
    )
    assert world.reconcile() == []
    world.application("FAILED", executionAttempts=4, app={"errorMessage": "driver container failed with ExitCode: 1"})
    world.delete_pod()
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Failed", "Failed")
    assert world.pipeline["status"]["lastError"] == "driver container failed with ExitCode: 1"


@pytest.mark.parametrize(
    ("state", "attempts", "told", "kstatus_"),
    [
        ("SUBMISSION_FAILED", 0, "Failing", "InProgress"),
        ("FAILING", 1, "Failing", "InProgress"),
        ("PENDING_RERUN", 2, "Starting", "InProgress"),
        ("INVALIDATING", 4, "Starting", "InProgress"),
        ("COMPLETED", 1, "Finished", "Current"),
        ("SUCCEEDING", 1, "Starting", "InProgress"),
        ("UNKNOWN", 1, "Starting", "InProgress"),
    ],
)
def test_states_of_a_spark_application(
    api: FakeApi, world: World, state: str, attempts: int, told: str, kstatus_: str
) -> None:
    api.unserved.clear()
    world.reconcile()
    world.application(state, executionAttempts=attempts)
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == (told, kstatus_)


def test_a_spark_application_that_has_ended_is_replaced_when_it_is_suspended(api: FakeApi, world: World) -> None:
    api.unserved.clear()
    world.reconcile()
    world.application("COMPLETED")
    world.edit(state="suspended")
    assert "delete SparkApplication hourly" in world.reconcile()
    assert api.of("SparkApplication")["hourly"]["spec"]["suspend"] is True
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Suspended", "Current")


def test_the_launcher_spark_operator_without_its_crd_stalls_the_pipeline(world: World) -> None:
    world.edit(launcher="SparkOperator")
    world.reconcile()
    assert world.conditions["Stalled"]["reason"] == "SparkOperatorNotFound"


def test_another_launcher_starts_once_the_first_driver_is_gone(api: FakeApi, world: World) -> None:
    world.reconcile()
    world.pod(ready=True)
    api.unserved.clear()
    world.start_another_operator()
    world.reconcile()
    assert not api.of("SparkApplication"), "a running pipeline stays with its launcher"
    world.edit(launcher="SparkOperator")
    assert world.reconcile()[0] == "delete Deployment hourly-driver"
    world.reconcile()
    assert not api.of("SparkApplication") and world.conditions["Ready"]["reason"] == "ChangingLauncher"
    world.delete_pod()
    world.reconcile()
    assert "hourly" in api.of("SparkApplication")


def test_an_object_of_another_owner_stalls_the_pipeline(api: FakeApi, world: World) -> None:
    api.put(DEPLOYMENT, {"metadata": {"name": "hourly-driver", "namespace": "events"}, "spec": {}})
    world.reconcile()
    assert world.conditions["Stalled"]["reason"] == "NameConflict" and world.deployment["spec"] == {}


def test_a_change_that_the_api_server_rejects_stalls_the_pipeline(api: FakeApi, world: World) -> None:
    api.reject = lambda write: ApiError(403, "exceeded quota") if "Claim" in write else None
    world.reconcile()
    assert "exceeded quota" in world.conditions["Stalled"]["message"]


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteMany", "ReadWriteOnce"]])
def test_the_access_modes_of_an_existing_claim_decide_where_executors_run(
    api: FakeApi, world: World, modes: Sequence[str]
) -> None:
    api.put(CLAIM, {"metadata": {"name": "mine", "namespace": "events"}, "spec": {"accessModes": modes}})
    world.edit(checkpoint={"pvc": {"claimName": "mine"}})
    world.reconcile()
    (settings,) = api.of("ConfigMap").values()
    assert ("podAffinity" in settings["data"]["executor.json"]) == ("ReadWriteMany" not in modes)
    assert not [it for it in api.writes if "PersistentVolumeClaim" in it]


@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        ({"checkpoint": None}, "InvalidSpec", "spec.checkpoint"),
        ({"clusterRef": {"name": "west"}}, "ClusterNotFound", "Cluster west does not exist"),
        ({"sinks": [{"from": "nobody", "topic": "late"}]}, "InvalidSpec", "must name a source or a transform"),
    ],
)
def test_an_impossible_spec_is_reported(world: World, spec: dict[str, Any], reason: str, said: str) -> None:
    world.edit(**spec)
    if spec.get("checkpoint", 1) is None:
        del world.pipeline["spec"]["checkpoint"]
    world.reconcile()
    assert world.conditions["Ready"]["reason"] == reason and said in world.conditions["Ready"]["message"]
