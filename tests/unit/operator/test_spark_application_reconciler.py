"""Reconciles of a Pipeline that runs as a SparkApplication, and changes of its launcher."""

import pytest

from ottla_operator.plan.conditions import kstatus
from tests.unit.operator.pipeline_world import PipelineWorld, running_status


def test_the_status_of_a_spark_application_becomes_that_of_the_pipeline(world: PipelineWorld) -> None:
    world.api.unserved.clear()
    assert "apply SparkApplication hourly" in world.reconcile()
    assert not world.api.of("Deployment") and world.pipeline["status"]["application"] == "SparkApplication/hourly"
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Pending", "InProgress")
    world.set_application_status("SUBMITTED", executionAttempts=1)
    world.reconcile()
    assert world.pipeline["status"]["state"] == "Starting"
    world.put_pod(ready=True, template=world.api.of("SparkApplication")["hourly"]["spec"]["driver"]["template"])
    world.set_application_status("RUNNING", executionAttempts=2)
    world.runner = running_status()
    world.reconcile()
    status = world.pipeline["status"]
    assert (status["state"], status["restarts"], status["lagRecords"], kstatus(world.pipeline)) == (
        "Running",
        1,
        7,
        "Current",
    )
    assert world.reconcile() == []
    world.set_application_status(
        "FAILED", executionAttempts=4, app={"errorMessage": "driver container failed with ExitCode: 1"}
    )
    world.delete_pod()
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Failed", "Failed")
    assert world.pipeline["status"]["lastError"] == "driver container failed with ExitCode: 1"


@pytest.mark.parametrize(
    ("state", "attempts", "expected_state", "kstatus_"),
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
def test_each_state_of_a_spark_application_becomes_one_of_the_pipeline(
    world: PipelineWorld, state: str, attempts: int, expected_state: str, kstatus_: str
) -> None:
    world.api.unserved.clear()
    world.reconcile()
    world.set_application_status(state, executionAttempts=attempts)
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == (expected_state, kstatus_)


def test_a_spark_application_that_has_ended_is_replaced_when_suspended(world: PipelineWorld) -> None:
    world.api.unserved.clear()
    world.reconcile()
    world.set_application_status("COMPLETED")
    world.edit(state="suspended")
    assert "delete SparkApplication hourly" in world.reconcile()
    assert world.api.of("SparkApplication")["hourly"]["spec"]["suspend"] is True
    world.reconcile()
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Suspended", "Current")


def test_the_launcher_spark_operator_without_its_crd_stalls_the_pipeline(world: PipelineWorld) -> None:
    world.edit(launcher="SparkOperator")
    world.reconcile()
    assert world.conditions["Stalled"]["reason"] == "SparkOperatorNotFound"


def test_another_launcher_starts_once_the_first_driver_is_gone(world: PipelineWorld) -> None:
    world.reconcile()
    world.put_pod(ready=True)
    world.api.unserved.clear()
    world.start_another_operator()
    world.reconcile()
    assert not world.api.of("SparkApplication"), "a running pipeline stays with its launcher"
    world.edit(launcher="SparkOperator")
    assert world.reconcile()[0] == "delete Deployment hourly-driver"
    world.reconcile()
    assert not world.api.of("SparkApplication") and world.conditions["Ready"]["reason"] == "ChangingLauncher"
    world.delete_pod()
    world.reconcile()
    assert "hourly" in world.api.of("SparkApplication")
