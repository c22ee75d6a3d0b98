"""Conditions of a Pipeline, for anything that may be observed of it."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.plan.conditions import Ready, Stalled
from ottla_operator.plan.observed_pods import DriverPod
from ottla_operator.plan.pipeline.status import (
    PipelineObservations,
    RunnerStatus,
    evaluate_application,
    evaluate_driver,
)

STATES = {"Pending", "Starting", "Running", "Finished", "Failing", "Suspended", "Failed"}
"""As the CRD lists them."""
APPLICATION_STATES = (
    *("", "SUBMITTED", "RUNNING", "COMPLETED", "FAILED", "SUBMISSION_FAILED", "PENDING_RERUN", "INVALIDATING"),
    *("SUCCEEDING", "FAILING", "SUSPENDING", "SUSPENDED", "RESUMING", "UNKNOWN", "a state of a later version"),
)
pods = st.builds(
    DriverPod,
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


@given(observations)
@settings(max_examples=200, deadline=None)
def test_a_driver_of_an_older_spec_is_not_evaluated(
    observed: PipelineObservations,
) -> None:
    others = [replace(it, settings="before") for it in observed.drivers]
    run = evaluate_driver(replace(observed, drivers=others, is_suspended=False, is_finished=False))
    assert run.state == "Starting" and run.error == ""
