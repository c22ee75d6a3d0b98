"""Reconciles of a Pipeline on Kubernetes: what it waits for, and what is created, left alone,
deleted and reported.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla_operator.kube.api import ApiError
from ottla_operator.kube.kinds import CLAIM, DEPLOYMENT, POD
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.pipeline.status import RunnerStatus
from ottla_operator.resources.model import Json
from tests.unit.operator.pipeline_world import TERMINATED, PipelineWorld, running_status


def test_converged_objects_are_not_written_again(world: PipelineWorld) -> None:
    made = world.reconcile()
    assert made[-2:] == ["apply Deployment hourly-driver", "status Pipeline hourly"]
    assert world.pipeline["status"]["application"] == "Deployment/hourly-driver"
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Starting", "InProgress")
    assert world.reconcile() == []
    world.start_another_operator()
    assert world.reconcile() == [], "nor by another operator"


def test_a_running_pipeline_reports_its_progress(world: PipelineWorld) -> None:
    world.reconcile()
    world.put_pod(ready=True)
    world.runner = running_status()
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
    world: PipelineWorld, ready: bool | None, why: str
) -> None:
    if ready is None:
        del world.api.objects["Topic", "events", "flights"]
    else:
        world.put_source_topic(ready=False)
    world.reconcile()
    assert not world.api.of("Deployment")
    assert world.conditions["Ready"]["reason"] == "WaitingForTopics"
    assert world.conditions["Ready"]["message"] == f"no driver is started with this spec yet: topic flights: {why}"
    assert world.conditions["TopicsReady"]["status"] == "False"
    world.put_source_topic()
    world.reconcile()
    assert world.api.of("Deployment") and world.conditions["TopicsReady"]["status"] == "True"


def test_a_running_driver_is_left_alone_while_a_topic_is_not_ready(world: PipelineWorld) -> None:
    world.reconcile()
    world.put_pod(ready=True)
    world.runner = running_status()
    world.reconcile()
    world.put_source_topic(ready=False)
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 1
    assert (kstatus(world.pipeline), world.conditions["TopicsReady"]["status"]) == ("Current", "False")
    before = dict(world.deployment)
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    world.reconcile()
    assert world.deployment == before, "another driver could not start: the running one stays"
    assert world.conditions["Ready"]["reason"] == "WaitingForTopics"


def test_a_pipeline_is_suspended_and_resumed(world: PipelineWorld) -> None:
    world.reconcile()
    world.put_pod(ready=True)
    world.api.events.clear()
    world.start_another_operator()  # it would record any event again
    world.edit(state="suspended")
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 0 and kstatus(world.pipeline) == "InProgress"
    assert world.api.events == [], "no driver is launched"
    world.delete_pod()
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Suspended", "Current")
    world.start_another_operator()
    world.edit(state="running")
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 1 and kstatus(world.pipeline) == "InProgress"
    assert [reason for reason, _ in world.api.events] == ["Suspended", "DriverLaunched"]


def test_a_completed_pipeline_is_not_started_again(world: PipelineWorld) -> None:
    world.edit(trigger={"availableNow": True})
    world.reconcile()
    world.put_pod(ready=True)
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
    assert world.deployment["spec"]["replicas"] == 1, "the changed pipeline has not finished"


def test_a_completed_pipeline_that_is_suspended_and_resumed_runs_again(world: PipelineWorld) -> None:
    world.edit(trigger={"availableNow": True})
    world.reconcile()
    world.put_pod(ready=True)
    world.runner = RunnerStatus("finished")
    world.reconcile()
    world.delete_pod()
    for state, replicas in (("suspended", 0), ("running", 1)):
        world.edit(state=state)
        world.reconcile()
        assert world.deployment["spec"]["replicas"] == replicas


def test_a_driver_that_fails_again_and_again_stalls_the_pipeline(world: PipelineWorld) -> None:
    world.reconcile()
    world.put_pod(restartCount=1, lastState={"terminated": TERMINATED}, state={"running": {}})
    world.reconcile()
    status = world.pipeline["status"]
    assert (status["state"], status["restarts"], kstatus(world.pipeline)) == ("Failing", 1, "InProgress")
    assert status["lastError"] == "pipeline hourly: the topic flights does not exist"
    world.put_pod(
        restartCount=3, lastState={"terminated": TERMINATED}, state={"waiting": {"reason": "CrashLoopBackOff"}}
    )
    world.reconcile()
    assert world.conditions["Stalled"]["message"].endswith("3 times: pipeline hourly: the topic flights does not exist")
    world.put_pod(ready=True, restartCount=4, lastState={"terminated": TERMINATED})
    world.runner = running_status()
    world.reconcile()
    assert kstatus(world.pipeline) == "Current" and world.pipeline["status"]["lastError"], "the last error stays"
    world.put_pod(restartCount=1, state={"terminated": {**TERMINATED, "exitCode": 2}})
    world.runner = None
    world.reconcile()
    assert (world.pipeline["status"]["state"], world.conditions["Stalled"]["reason"]) == ("Failed", "InvalidPipeline")


def test_an_image_that_cannot_be_pulled_stalls_the_pipeline(world: PipelineWorld) -> None:
    world.reconcile()
    world.put_pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image spark:1"}})
    world.reconcile()
    assert world.conditions["Stalled"]["message"] == "ImagePullBackOff: no such image spark:1"


def test_executors_that_cannot_be_scheduled_are_reported(world: PipelineWorld) -> None:
    world.reconcile()
    world.put_pod(ready=True)
    world.runner = running_status()
    labels = {**world.deployment["metadata"]["labels"], "app.kubernetes.io/component": "pipeline-executor"}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: cpu"}
    metadata = {"name": "hourly-exec-1", "namespace": "events", "labels": labels}
    status: Json = {"phase": "Pending", "conditions": [condition]}
    world.api.put(POD, {"metadata": metadata, "spec": {"containers": []}, "status": status})
    world.reconcile()
    assert world.conditions["Ready"]["message"] == "no executor is running: Unschedulable: 0/1 nodes: cpu"
    status |= {"phase": "Running", "conditions": []}
    world.reconcile()
    assert kstatus(world.pipeline) == "Current"


def test_a_driver_of_an_older_spec_is_not_taken_for_the_current_one(world: PipelineWorld) -> None:
    world.reconcile()
    old = world.deployment["spec"]["template"]
    world.put_pod(ready=True)
    world.runner = running_status()
    world.edit(transforms=[{"name": "late", "sql": "SELECT 2"}])
    writes = world.reconcile()
    assert [it for it in writes if it.startswith("delete ConfigMap hourly-pipeline-")]
    world.put_pod(ready=True, template=old)
    world.reconcile()
    assert (
        kstatus(world.pipeline) == "InProgress"
        and "waiting for the previous driver to stop" in world.conditions["Ready"]["message"]
    )


def test_an_object_of_another_owner_stalls_the_pipeline(world: PipelineWorld) -> None:
    world.api.put(DEPLOYMENT, {"metadata": {"name": "hourly-driver", "namespace": "events"}, "spec": {}})
    world.reconcile()
    assert world.conditions["Stalled"]["reason"] == "NameConflict" and world.deployment["spec"] == {}


def test_a_change_that_the_api_server_rejects_stalls_the_pipeline(world: PipelineWorld) -> None:
    world.api.reject = lambda write: ApiError(403, "exceeded quota") if "Claim" in write else None
    world.reconcile()
    assert "exceeded quota" in world.conditions["Stalled"]["message"]


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteMany", "ReadWriteOnce"]])
def test_the_access_modes_of_an_existing_claim_decide_where_executors_run(
    world: PipelineWorld, modes: Sequence[str]
) -> None:
    world.api.put(CLAIM, {"metadata": {"name": "mine", "namespace": "events"}, "spec": {"accessModes": modes}})
    world.edit(checkpoint={"pvc": {"claimName": "mine"}})
    world.reconcile()
    (settings,) = world.api.of("ConfigMap").values()
    assert ("podAffinity" in settings["data"]["executor.json"]) == ("ReadWriteMany" not in modes)
    assert not [it for it in world.api.writes if "PersistentVolumeClaim" in it]


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"checkpoint": None}, "InvalidSpec", "spec.checkpoint"),
        ({"clusterRef": {"name": "west"}}, "ClusterNotFound", "Cluster west does not exist"),
        ({"sinks": [{"from": "nobody", "topic": "late"}]}, "InvalidSpec", "must name a source or a transform"),
    ],
)
def test_an_impossible_spec_is_reported(world: PipelineWorld, spec: dict[str, Any], reason: str, message: str) -> None:
    world.edit(**spec)
    if spec.get("checkpoint", 1) is None:
        del world.pipeline["spec"]["checkpoint"]
    world.reconcile()
    assert world.conditions["Ready"]["reason"] == reason and message in world.conditions["Ready"]["message"]
