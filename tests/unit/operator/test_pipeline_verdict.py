"""What is said of a Pipeline, whatever was seen of it."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_operator.plan.conditions import Ready, Stalled
from ottla_operator.plan.pipeline.seen import DriverPod, RunnerStatus
from ottla_operator.plan.pipeline.verdict import PipelineObservations, evaluate_application, evaluate_driver

STATES = {"Pending", "Starting", "Running", "Finished", "Failing", "Suspended", "Failed"}
"""As the CRD's text lists them."""
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
    last_message=st.sampled_from(["", "it fell"]),
    problem=st.sampled_from(["", "ImagePullBackOff: no such image", "Unschedulable: 0/1 nodes"]),
)
tells = st.none() | st.builds(
    RunnerStatus, state=st.sampled_from(["starting", "running", "stopping", "failed", "finished"])
)
facts = st.builds(
    PipelineObservations,
    settings=st.just("now"),
    is_suspended=st.booleans(),
    drivers=st.lists(pods, max_size=2),
    executors=st.lists(pods, max_size=2),
    runner=tells,
    is_finished=st.booleans(),
    application=st.builds(
        lambda state, attempts: {"status": {"applicationState": {"state": state}, "executionAttempts": attempts}},
        st.sampled_from(APPLICATION_STATES),
        st.integers(0, 5),
    ),
)


@given(facts)
@settings(max_examples=400, deadline=None)
def test_it_is_as_wished_only_when_a_driver_of_this_pipeline_runs_or_nothing_is_to_run(
    seen: PipelineObservations,
) -> None:
    for run in (evaluate_driver(seen), evaluate_application(seen)):
        assert run.state in STATES and run.readiness.message
        if isinstance(run.readiness, Ready):
            at_rest = (seen.is_suspended and not seen.drivers) or seen.is_finished or run.state == "Finished"
            assert at_rest or (run.state == "Running" and seen.driver is not None)
        if isinstance(run.readiness, Stalled):
            assert not seen.is_suspended, "somebody has wished that it does not run"


@given(facts)
@settings(max_examples=200, deadline=None)
def test_a_driver_of_another_pipeline_or_one_that_leaves_says_nothing_about_this_one(
    seen: PipelineObservations,
) -> None:
    others = [replace(it, settings="before") for it in seen.drivers]
    run = evaluate_driver(replace(seen, drivers=others, is_suspended=False, is_finished=False))
    assert run.state == "Starting" and run.error == ""
