"""Looks at a Pipeline: what waits for what, what is made, left alone and taken away, and what is said."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.kinds import CLAIM, DEPLOYMENT, PIPELINE, POD, TOPIC
from ottla_operator.kube.known import Key, slim
from ottla_operator.kube.pipelines import Pipelines
from ottla_operator.kube.telling import Telling
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.pipeline.seen import RunnerStatus
from ottla_operator.resources.model import Json
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "hourly")
TERMINATED = {"exitCode": 1, "message": "noise\npipeline hourly: the topic flights does not exist\n", "reason": "Error"}


class World:
    """One operator, which may be replaced by another at any time, and the drivers that it asks."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.told: RunnerStatus | None = None
        self.events: list[str] = []
        self.start_another()

    def start_another(self) -> None:
        as_api = cast(Api, self.api)
        self.pipelines = Pipelines(
            as_api,
            Telling(as_api, "test"),
            PipelineImage("spark:1"),
            lambda key: self._body("Pipeline", key),
            self._cluster,
            lambda key: [slim(it) for it in self.api.of("Topic").values()],
            self._ask,
        )

    async def _ask(self, address: str) -> RunnerStatus | None:
        assert address == "10.0.0.9:8080"
        return self.told

    async def _cluster(self, key: Key) -> Json | None:
        return self._body("Cluster", key)

    def _body(self, kind: str, key: Key) -> Json | None:
        it = self.api.objects.get((kind, key.namespace, key.name))
        return slim(it) if it else None

    def look(self) -> list[str]:
        """What was written."""
        before = len(self.api.writes)
        asyncio.run(self.pipelines.look(KEY))
        return self.api.writes[before:]

    @property
    def it(self) -> Json:
        return self.api.of("Pipeline")["hourly"]

    @property
    def said(self) -> dict[str, dict[str, Any]]:
        return {it["type"]: it for it in self.it["status"]["conditions"]}

    def edit(self, **spec: Any) -> None:
        self.it["spec"] = {**self.it["spec"], **spec}
        self.it["metadata"]["generation"] += 1

    def topic(self, name: str, ready: bool = True) -> None:
        condition = {"type": "Ready", "status": str(ready), "message": "topic flights is being made"}
        metadata = {"name": name, "namespace": "events", "generation": 1}
        it = {"apiVersion": TOPIC.api, "kind": "Topic", "metadata": metadata, "spec": {"clusterRef": {"name": "demo"}}}
        self.api.put(TOPIC, {**it, "status": {"conditions": [condition]}})

    # --- what Kubernetes and the kubelet do

    @property
    def deployment(self) -> Json:
        return self.api.of("Deployment")["hourly-driver"]

    def pod(self, *, ready: bool = False, template: Json | None = None, **container: Any) -> None:
        """The driver's, with the template of now."""
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

    def no_pod(self) -> None:
        del self.api.objects["Pod", "events", "hourly-driver-x"]

    def application(self, state: str, **status: Any) -> None:
        """What kubeflow's operator writes."""
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


def test_what_was_made_is_not_written_again(api: FakeApi, world: World) -> None:
    made = world.look()
    assert made[-2:] == ["apply Deployment hourly-driver", "status Pipeline hourly"]
    assert world.it["status"]["application"] == "Deployment/hourly-driver"
    assert (world.it["status"]["state"], kstatus(world.it)) == ("Starting", "InProgress")
    assert world.look() == []
    world.start_another()
    assert world.look() == [], "nor by another operator"


def test_a_pipeline_runs_and_tells_how_it_does(world: World) -> None:
    world.look()
    world.pod(ready=True)
    world.told = running()
    world.look()
    status = world.it["status"]
    assert (status["state"], kstatus(world.it)) == ("Running", "Current")
    assert (status["lagRecords"], status["lagSeconds"], status["inputRowsPerSecond"]) == (7, 1.5, 5.0)
    assert status["lastProgress"] == "2026-01-01T00:00:00Z" and "lastError" not in status
    assert world.look() == []


@pytest.mark.parametrize(("ready", "why"), [(False, "Topic flights is not ready: topic flights is being made"), (None, "no broker of Cluster demo is ready")])  # fmt: skip
def test_a_driver_waits_for_the_topics_that_it_reads(api: FakeApi, world: World, ready: bool | None, why: str) -> None:
    if ready is None:
        del api.objects["Topic", "events", "flights"]
    else:
        world.topic("flights", ready=False)
    world.look()
    assert not api.of("Deployment")
    assert world.said["Ready"]["reason"] == "WaitingForTopics"
    assert world.said["Ready"]["message"] == f"the driver is not started: topic flights: {why}"
    assert world.said["TopicsReady"]["status"] == "False"
    world.topic("flights")
    world.look()
    assert api.of("Deployment") and world.said["TopicsReady"]["status"] == "True"


def test_a_driver_that_runs_is_left_alone_while_a_topic_is_not_ready(api: FakeApi, world: World) -> None:
    world.look()
    world.pod(ready=True)
    world.told = running()
    world.look()
    world.topic("flights", ready=False)
    world.look()
    assert world.deployment["spec"]["replicas"] == 1
    assert (kstatus(world.it), world.said["TopicsReady"]["status"]) == ("Current", "False")
    before = dict(world.deployment)
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    world.look()
    assert world.deployment == before, "another driver would not start: the one that runs stays"
    assert world.said["Ready"]["reason"] == "WaitingForTopics"


def test_suspended_and_resumed(world: World) -> None:
    world.look()
    world.pod(ready=True)
    world.edit(state="suspended")
    world.look()
    assert world.deployment["spec"]["replicas"] == 0 and kstatus(world.it) == "InProgress"
    world.no_pod()
    world.look()
    assert (world.it["status"]["state"], kstatus(world.it)) == ("Suspended", "Current")
    world.edit(state="running")
    world.look()
    assert world.deployment["spec"]["replicas"] == 1 and kstatus(world.it) == "InProgress"


def test_one_that_has_read_what_was_there_is_completed_and_not_started_again(api: FakeApi, world: World) -> None:
    world.edit(trigger={"availableNow": True})
    world.look()
    world.pod(ready=True)
    world.told = RunnerStatus("finished", None, "2026-01-01T00:00:00Z", 5.0, 0, 0.0)
    world.look()
    assert world.deployment["spec"]["replicas"] == 0
    world.no_pod()
    world.start_another()
    world.told = None
    world.look()
    assert world.look() == []
    assert (world.it["status"]["state"], world.said["Ready"]["reason"]) == ("Finished", "Completed")
    assert kstatus(world.it) == "Current" and world.it["status"]["lagRecords"] == 0
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    world.look()
    assert world.deployment["spec"]["replicas"] == 1, "another pipeline has not read anything yet"


def test_finished_suspended_and_resumed_reads_what_came_since(world: World) -> None:
    world.edit(trigger={"availableNow": True})
    world.look()
    world.pod(ready=True)
    world.told = RunnerStatus("finished")
    world.look()
    world.no_pod()
    for state, replicas in (("suspended", 0), ("running", 1)):
        world.edit(state=state)
        world.look()
        assert world.deployment["spec"]["replicas"] == replicas


def test_a_driver_that_falls_says_why_and_somebody_is_called_when_it_goes_on_falling(world: World) -> None:
    world.look()
    world.pod(restartCount=1, lastState={"terminated": TERMINATED}, state={"running": {}})
    world.look()
    status = world.it["status"]
    assert (status["state"], status["restarts"], kstatus(world.it)) == ("Failing", 1, "InProgress")
    assert status["lastError"] == "pipeline hourly: the topic flights does not exist"
    world.pod(restartCount=3, lastState={"terminated": TERMINATED}, state={"waiting": {"reason": "CrashLoopBackOff"}})
    world.look()
    assert world.said["Stalled"]["message"].endswith("3 times: pipeline hourly: the topic flights does not exist")
    world.pod(ready=True, restartCount=4, lastState={"terminated": TERMINATED})
    world.told = running()
    world.look()
    assert kstatus(world.it) == "Current" and world.it["status"]["lastError"], "what last went wrong stays to be read"
    world.pod(restartCount=1, state={"terminated": {**TERMINATED, "exitCode": 2}})
    world.told = None
    world.look()
    assert (world.it["status"]["state"], world.said["Stalled"]["reason"]) == ("Failed", "BadPipeline")


def test_an_image_that_cannot_be_had_is_a_persons_matter(world: World) -> None:
    world.look()
    world.pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image spark:1"}})
    world.look()
    assert world.said["Stalled"]["message"] == "ImagePullBackOff: no such image spark:1"


def test_executors_that_cannot_be_placed_are_told(api: FakeApi, world: World) -> None:
    world.look()
    world.pod(ready=True)
    world.told = running()
    labels = {**world.deployment["metadata"]["labels"], "app.kubernetes.io/component": "pipeline-executor"}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: cpu"}
    metadata = {"name": "hourly-exec-1", "namespace": "events", "labels": labels}
    status: Json = {"phase": "Pending", "conditions": [condition]}
    api.put(POD, {"metadata": metadata, "spec": {"containers": []}, "status": status})
    world.look()
    assert world.said["Ready"]["message"] == "no executor runs: Unschedulable: 0/1 nodes: cpu"
    status |= {"phase": "Running", "conditions": []}
    world.look()
    assert kstatus(world.it) == "Current"


def test_a_driver_of_an_older_spec_is_not_taken_for_the_one_that_is_wished(api: FakeApi, world: World) -> None:
    world.look()
    old = world.deployment["spec"]["template"]
    world.pod(ready=True)
    world.told = running()
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    writes = world.look()
    assert [it for it in writes if it.startswith("delete ConfigMap hourly-pipeline-")]
    world.pod(ready=True, template=old)
    world.look()
    assert kstatus(world.it) == "InProgress" and "before it stops first" in world.said["Ready"]["message"]


def test_a_spark_application_where_it_is_known_and_its_status_carried_back(api: FakeApi, world: World) -> None:
    api.unserved.clear()
    assert "apply SparkApplication hourly" in world.look()
    assert not api.of("Deployment") and world.it["status"]["application"] == "SparkApplication/hourly"
    assert (world.it["status"]["state"], kstatus(world.it)) == ("Pending", "InProgress")
    world.application("SUBMITTED", executionAttempts=1)
    world.look()
    assert world.it["status"]["state"] == "Starting"
    world.pod(ready=True, template=api.of("SparkApplication")["hourly"]["spec"]["driver"]["template"])
    world.application("RUNNING", executionAttempts=2)
    world.told = running()
    world.look()
    status = world.it["status"]
    assert (status["state"], status["restarts"], status["lagRecords"], kstatus(world.it)) == (
        "Running",
        1,
        7,
        "Current",
    )
    assert world.look() == []
    world.application("FAILED", executionAttempts=4, app={"errorMessage": "driver container failed with ExitCode: 1"})
    world.no_pod()
    world.look()
    assert (world.it["status"]["state"], kstatus(world.it)) == ("Failed", "Failed")
    assert world.it["status"]["lastError"] == "driver container failed with ExitCode: 1"


@pytest.mark.parametrize(
    ("state", "attempts", "told", "kstatus_"),
    [
        ("SUBMISSION_FAILED", 0, "Failing", "InProgress"),
        ("FAILING", 1, "Failing", "InProgress"),
        ("PENDING_RERUN", 2, "Failing", "InProgress"),
        ("PENDING_RERUN", 4, "Failing", "Failed"),
        ("COMPLETED", 1, "Finished", "Current"),
        ("SUCCEEDING", 1, "Starting", "InProgress"),
        ("UNKNOWN", 1, "Starting", "InProgress"),
    ],
)
def test_states_of_a_spark_application(
    api: FakeApi, world: World, state: str, attempts: int, told: str, kstatus_: str
) -> None:
    api.unserved.clear()
    world.look()
    world.application(state, executionAttempts=attempts)
    world.look()
    assert (world.it["status"]["state"], kstatus(world.it)) == (told, kstatus_)


def test_a_spark_application_that_has_ended_makes_room_when_it_is_suspended(api: FakeApi, world: World) -> None:
    api.unserved.clear()
    world.look()
    world.application("COMPLETED")
    world.edit(state="suspended")
    assert "delete SparkApplication hourly" in world.look()
    assert api.of("SparkApplication")["hourly"]["spec"]["suspend"] is True
    world.look()
    assert (world.it["status"]["state"], kstatus(world.it)) == ("Suspended", "Current")


def test_without_the_spark_operator_the_wish_for_it_is_a_persons_matter(world: World) -> None:
    world.edit(launcher="SparkOperator")
    world.look()
    assert world.said["Stalled"]["reason"] == "NoSparkOperator"


def test_another_launcher_starts_when_the_first_one_is_gone(api: FakeApi, world: World) -> None:
    world.look()
    world.pod(ready=True)
    api.unserved.clear()
    world.start_another()
    world.look()
    assert not api.of("SparkApplication"), "that the other may be had changes nothing for a pipeline that runs"
    world.edit(launcher="SparkOperator")
    assert world.look()[0] == "delete Deployment hourly-driver"
    world.look()
    assert not api.of("SparkApplication") and world.said["Ready"]["reason"] == "ChangingLauncher"
    world.no_pod()
    world.look()
    assert "hourly" in api.of("SparkApplication")


def test_somebody_elses_objects_are_left_alone(api: FakeApi, world: World) -> None:
    api.put(DEPLOYMENT, {"metadata": {"name": "hourly-driver", "namespace": "events"}, "spec": {}})
    world.look()
    assert world.said["Stalled"]["reason"] == "NameTaken" and world.deployment["spec"] == {}


def test_what_the_api_server_refuses_is_told(api: FakeApi, world: World) -> None:
    api.refuse = lambda write: ApiError(403, "exceeded quota") if "Claim" in write else None
    world.look()
    assert "exceeded quota" in world.said["Stalled"]["message"]


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteMany", "ReadWriteOnce"]])
def test_a_claim_of_ones_own_decides_where_executors_are(api: FakeApi, world: World, modes: Sequence[str]) -> None:
    api.put(CLAIM, {"metadata": {"name": "mine", "namespace": "events"}, "spec": {"accessModes": modes}})
    world.edit(checkpoint={"pvc": {"claimName": "mine"}})
    world.look()
    (settings,) = api.of("ConfigMap").values()
    assert ("podAffinity" in settings["data"]["executor.json"]) == ("ReadWriteMany" not in modes)
    assert not [it for it in api.writes if "PersistentVolumeClaim" in it]


@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        ({"checkpoint": None}, "InvalidSpec", "spec.checkpoint"),
        ({"clusterRef": {"name": "west"}}, "NoCluster", "there is no Cluster west"),
        ({"sinks": [{"from": "nobody", "topic": "late"}]}, "InvalidSpec", "must name a source or a transform"),
    ],
)
def test_what_cannot_be_is_said(world: World, spec: dict[str, Any], reason: str, said: str) -> None:
    world.edit(**spec)
    if spec.get("checkpoint", 1) is None:
        del world.it["spec"]["checkpoint"]
    world.look()
    assert world.said["Ready"]["reason"] == reason and said in world.said["Ready"]["message"]
