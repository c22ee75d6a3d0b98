"""Conditions of a Pipeline, for anything that may be observed of it."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.plan.conditions import Conditions, Readiness, Ready, Reconciling, Stalled, render_conditions
from ottla_operator.plan.observed_pods import PipelinePod
from ottla_operator.plan.pipeline.status import (
    NO_ANSWER,
    RUNNING,
    SUSPENDING,
    PipelineObservations,
    PipelineRun,
    RunnerStatus,
    debounce_run,
    evaluate_application,
    evaluate_driver,
)

STATES = {"Pending", "Starting", "Running", "Finished", "Failing", "Suspended", "Failed"}
"""The values of `status.state` that the CRD lists."""
APPLICATION_STATES = (
    *("", "SUBMITTED", "RUNNING", "COMPLETED", "FAILED", "SUBMISSION_FAILED", "PENDING_RERUN", "INVALIDATING"),
    *("SUCCEEDING", "FAILING", "SUSPENDING", "SUSPENDED", "RESUMING", "UNKNOWN", "a state of a later version"),
)
pods = st.builds(
    PipelinePod,
    name=st.just("pod"),
    is_ready=st.booleans(),
    is_terminating=st.booleans(),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    settings=st.sampled_from(["now", "before"]),
    address=st.just("10.0.0.9:8080"),
    restarts=st.integers(0, 4),
    exit_code=st.sampled_from([None, 0, 1, 2, 3, 137]),
    last_message=st.sampled_from(["", "out of memory"]),
    problem=st.sampled_from(["", "ImagePullBackOff: no such image", "Unschedulable: 0/1 nodes"]),
)
runners = st.none() | st.builds(
    RunnerStatus, state=st.sampled_from(["starting", "running", "stopping", "failed", "finished"])
)
observations = st.builds(
    PipelineObservations,
    settings=st.just("now"),
    is_suspended=st.booleans(),
    drivers=st.lists(pods, max_size=2),
    executors=st.lists(pods, max_size=2),
    runner=runners,
    is_finished=st.booleans(),
    application=st.builds(
        lambda state, attempts: {"status": {"applicationState": {"state": state}, "executionAttempts": attempts}},
        st.sampled_from(APPLICATION_STATES),
        st.integers(0, 5),
    ),
)


@given(observations)
@settings(max_examples=400, deadline=None)
def test_a_pipeline_is_ready_only_if_its_driver_runs_or_none_is_to_run(
    observed: PipelineObservations,
) -> None:
    for run in (evaluate_driver(observed), evaluate_application(observed)):
        assert run.state in STATES and run.readiness.message
        if isinstance(run.readiness, Ready):
            is_at_rest = (
                (observed.is_suspended and not observed.drivers) or observed.is_finished or run.state == "Finished"
            )
            assert is_at_rest or (run.state == "Running" and observed.driver is not None)
        if isinstance(run.readiness, Stalled):
            assert not observed.is_suspended, "a suspended pipeline needs no person"


def test_a_driver_whose_runner_has_not_answered_is_starting() -> None:
    ready = PipelinePod("pod", True, False, "Running", "now", "10.0.0.9:8080", 0, None, "", "")
    application = {"status": {"applicationState": {"state": "RUNNING"}, "executionAttempts": 1}}
    observed = PipelineObservations("now", False, [ready], application=application)
    for run in (evaluate_driver(observed), evaluate_application(observed)):
        assert (run.state, run.readiness) == ("Starting", Reconciling("DriverStarting", NO_ANSWER))


def with_status(readiness: Readiness, **status: Any) -> dict[str, Any]:
    """A Pipeline whose status is of its current generation."""
    conditions = render_conditions(Conditions(readiness, 1), (), "2026-01-01T00:00:00Z")
    return {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions": conditions, **status}}


UNANSWERED = PipelineRun("Starting", Reconciling("DriverStarting", NO_ANSWER))
RESTARTING = PipelineRun("Starting", Reconciling("DriverRestarting", "the Spark operator starts the driver again"))
CRASHED = Stalled("CrashLoopBackOff", "the driver failed 3 times: out of memory")


def test_a_running_driver_stays_ready_while_one_answer_is_missing() -> None:
    assert debounce_run(UNANSWERED, with_status(Ready(RUNNING))).readiness == Ready(RUNNING)
    assert debounce_run(UNANSWERED, with_status(Reconciling("DriverStarting", "the driver is starting"))) == UNANSWERED


def test_a_crash_loop_stays_stalled_until_the_driver_has_made_progress() -> None:
    crashed = with_status(CRASHED, state="Failing", lastError="out of memory")
    for run in (RESTARTING, UNANSWERED, PipelineRun("Running", Ready(RUNNING), runner=RunnerStatus("running"))):
        held = debounce_run(run, crashed)
        assert (held.state, held.readiness, held.error) == ("Failing", CRASHED, "out of memory")
    progress = RunnerStatus("running", last_progress="2026-01-01T00:00:00Z")
    running = PipelineRun("Running", Ready(RUNNING), runner=progress)
    assert debounce_run(running, crashed) == running
    suspending = PipelineRun("Suspended", SUSPENDING)
    assert debounce_run(suspending, crashed) == suspending


def test_a_changed_pipeline_is_evaluated_anew() -> None:
    crashed = with_status(CRASHED, state="Failing")
    crashed["metadata"]["generation"] = 2
    assert debounce_run(RESTARTING, crashed) == RESTARTING


def test_a_failure_keeps_its_cause_when_the_pod_is_gone() -> None:
    failed = PipelineRun("Failed", Stalled("ApplicationFailed", "the SparkApplication failed"))
    held = debounce_run(failed, with_status(RESTARTING.readiness, lastError="spec.sinks[0]: no such topic"))
    assert held.readiness.message == "the SparkApplication failed: spec.sinks[0]: no such topic"
    again = debounce_run(failed, with_status(held.readiness, lastError=held.error))
    assert again == held


@given(observations)
@settings(max_examples=200, deadline=None)
def test_a_driver_of_an_older_spec_is_not_evaluated(
    observed: PipelineObservations,
) -> None:
    others = [replace(it, settings="before") for it in observed.drivers]
    run = evaluate_driver(replace(observed, drivers=others, is_suspended=False, is_finished=False))
    assert run.state == "Starting" and run.error == ""
