"""The status of a Pipeline, from what is observed of its driver. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla_operator.plan.conditions import READY, STALLED, Readiness, Ready, Reconciling, Stalled, find_condition
from ottla_operator.plan.observed_pods import IMAGE_ERRORS, PipelinePod
from ottla_operator.resources.model import Json
from ottla_operator.resources.replacement import Comparison, Replacement

PERMANENT_EXIT_CODES: Final = (2, 3)
"""Exit codes by which the runner (`python -m ottla_spark`) says that a restart will not help."""
CRASH_LOOP_AFTER: Final = 3
"""Number of failures at which the pipeline becomes Stalled. On Kubernetes all failures of a pod or
SparkApplication count, with `ottla up` those without a stable run between them.
"""
MAX_ERROR_LENGTH: Final = 4096

RUNNING: Final = "the driver is running."
COMPLETED: Final = Ready("the driver has read everything and exited.", "Completed")
SUSPENDED: Final = Ready("the pipeline is suspended; its checkpoint is kept.", "Suspended")
REPLACED: Final = "Replaced"
NO_ANSWER: Final = "the driver's pod is ready and its runner has not answered yet"
RETAINED_REASONS: Final = ("CrashLoopBackOff", "InvalidPipeline", "ApplicationFailed")
SUSPENDING: Final = Reconciling("Suspending", "the driver stops after the batch in flight")


@dataclass(frozen=True, slots=True)
class RunnerStatus:
    """The status that a driver's runner reports, see `ottla_spark`."""

    state: str
    error: str | None = None
    last_progress: str | None = None
    input_rows_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    rejected: Sequence[Json] = ()
    spark_ui: str = ""
    has_caught_up: bool = False
    catch_up_seconds_left: float | None = None
    comparisons: Sequence[Comparison] = ()

    @classmethod
    def parse(cls, answer: Mapping[str, Json]) -> "RunnerStatus":
        """Raises KeyError, AttributeError, TypeError or ValueError for another program's answer."""
        return cls(
            str(answer["state"]),
            answer.get("error"),
            answer.get("lastProgress"),
            answer.get("inputRowsPerSecond"),
            answer.get("lagRecords"),
            answer.get("lagSeconds"),
            answer.get("rejected", ()),
            str(answer.get("sparkUi") or ""),
            bool(answer.get("caughtUp")),
            answer.get("catchUpSecondsLeft"),
            tuple(Comparison.parse(it) for it in answer.get("comparisons") or ()),
        )


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """`state`: `status.state`. `error`: the last one; empty if none is known."""

    state: str
    readiness: Readiness
    error: str = ""
    restarts: int | None = None
    runner: RunnerStatus | None = None


@dataclass(frozen=True, slots=True)
class PipelineObservations:
    """`settings`: what a driver has to be started with, see PipelinePod. `runner`: the answer of
    the current driver's runner. `is_finished`: the driver has read everything and exited.
    `application`: the Deployment or SparkApplication."""

    settings: str
    is_suspended: bool
    drivers: Sequence[PipelinePod] = ()
    executors: Sequence[PipelinePod] = ()
    runner: RunnerStatus | None = None
    is_finished: bool = False
    application: Json = field(default_factory=dict)

    @property
    def driver(self) -> PipelinePod | None:
        """The driver of the current settings, or None."""
        return next((it for it in self.drivers if it.settings == self.settings and not it.is_terminating), None)


def evaluate_driver(observed: PipelineObservations) -> PipelineRun:
    """Evaluates a driver that a Deployment or this machine runs."""
    if observed.is_suspended:
        return PipelineRun("Suspended", SUSPENDING if observed.drivers else SUSPENDED)
    if observed.is_finished:
        return PipelineRun("Finished", COMPLETED, runner=observed.runner)
    driver = observed.driver
    if driver is None:
        return PipelineRun("Starting", Reconciling("DriverStarting", _describe_missing_driver(observed)))
    return _evaluate_pod(driver, observed, driver.restarts)


def evaluate_application(observed: PipelineObservations) -> PipelineRun:
    """Evaluates a SparkApplication by the states that the Spark operator reports."""
    status = observed.application.get("status") or {}
    application_state = status.get("applicationState") or {}
    state = str(application_state.get("state") or "")
    restarts = max(0, int(status.get("executionAttempts") or 0) - 1)
    if observed.is_suspended:
        is_over = state in ("", "SUSPENDED", "COMPLETED", "FAILED") and not observed.drivers
        return PipelineRun("Suspended", SUSPENDED if is_over else SUSPENDING, restarts=restarts)
    driver = observed.driver
    error = (driver.last_message if driver else "") or str(application_state.get("errorMessage") or "")
    match state:
        case "COMPLETED":
            return PipelineRun("Finished", COMPLETED, restarts=restarts, runner=observed.runner)
        case "FAILED":
            readiness: Readiness = Stalled("ApplicationFailed", error or "the SparkApplication failed")
            return PipelineRun("Failed", readiness, error, restarts)
        case "SUBMISSION_FAILED":
            readiness = Reconciling("SubmissionFailed", error or "the SparkApplication could not be submitted")
            return PipelineRun("Failing", readiness, error, restarts)
        case "FAILING":
            return _evaluate_failure(error, driver.exit_code if driver else None, restarts + 1)
        case "PENDING_RERUN" | "INVALIDATING":  # after an end of any kind, or a change of the spec
            readiness = Reconciling("DriverRestarting", "the Spark operator starts the driver again")
            return PipelineRun("Starting", readiness, restarts=restarts)
        case "RUNNING" if driver is not None:
            return _evaluate_pod(driver, observed, restarts)
        case "" | "RESUMING":
            readiness = Reconciling("Submitting", "waiting for the Spark operator to submit the application")
            return PipelineRun("Pending", readiness, restarts=restarts)
    return PipelineRun("Starting", _evaluate_start(driver.problem if driver else ""), restarts=restarts)


def _evaluate_pod(driver: PipelinePod, observed: PipelineObservations, restarts: int) -> PipelineRun:
    runner = observed.runner
    is_running = runner is not None and runner.state in ("running", "stopping", "finished")
    if not is_running and driver.exit_code is not None:
        return _evaluate_failure(driver.last_message, driver.exit_code, restarts)
    if runner is None and driver.is_ready:  # a pod that Spark has created is ready as soon as its JVM is
        return PipelineRun("Starting", Reconciling("DriverStarting", NO_ANSWER), restarts=restarts)
    if not is_running:
        return PipelineRun("Starting", _evaluate_start(driver.problem), restarts=restarts, runner=runner)
    error = (runner and runner.error) or ""
    problem = next((it.problem for it in observed.executors if it.problem), "")
    if problem and not any(it.phase == "Running" for it in observed.executors):
        message = f"no executor is running: {problem}"
        return PipelineRun("Running", Reconciling("NoExecutorRunning", message), error or message, restarts, runner)
    return PipelineRun("Running", Ready(RUNNING), error, restarts, runner)


def _evaluate_failure(error: str, exit_code: int | None, failures: int) -> PipelineRun:
    message = error or "the driver failed"
    if exit_code in PERMANENT_EXIT_CODES:
        return PipelineRun("Failed", Stalled("InvalidPipeline", message), error, failures)
    if failures >= CRASH_LOOP_AFTER:
        stalled = Stalled("CrashLoopBackOff", f"the driver failed {failures} times: {message}")
        return PipelineRun("Failing", stalled, error, failures)
    return PipelineRun("Failing", Reconciling("DriverRestarting", message), error, failures)


def debounce_run(run: PipelineRun, resource: Mapping[str, Json]) -> PipelineRun:
    """Keeps the state of a run from flapping. `resource`: the Pipeline with the status that was
    written last.

    - A driver that was running stays so while its pod is ready and only its runner's answer is
      missing.
    - After a failure that a person must resolve, a driver that starts again changes nothing until
      it has made progress; also when its pod was deleted, and with it the exit code.
    - A failure keeps the cause that was known while the pod existed.
    """
    previous: Mapping[str, Json] = resource.get("status") or {}
    if previous.get("observedGeneration") != resource["metadata"]["generation"]:
        return run
    cause = run.error or str(previous.get("lastError") or "")
    ready, stalled = find_condition(resource, READY), find_condition(resource, STALLED)
    if run.readiness == Reconciling("DriverStarting", NO_ANSWER) and ready.get("status") == "True":
        return replace(run, state="Running", readiness=Ready(RUNNING))
    if isinstance(run.readiness, Stalled) and not run.error and cause:
        stalled_again = replace(run.readiness, message=f"{run.readiness.message}: {cause}")
        return replace(run, readiness=stalled_again, error=cause)
    is_held = stalled.get("status") == "True" and stalled.get("reason") in RETAINED_REASONS
    if is_held and not isinstance(run.readiness, Stalled) and not _has_progressed(run):
        held = Stalled(str(stalled["reason"]), str(stalled["message"]))
        return replace(run, state=str(previous.get("state") or "Failing"), readiness=held, error=cause)
    return run


def as_replaced(run: PipelineRun, by: str) -> PipelineRun:
    """The run of a Pipeline that is stopped because another one has taken over."""
    if run.readiness != SUSPENDED:
        return run
    message = f"Pipeline {by} has taken over; this one is stopped, and its checkpoint is kept."
    return replace(run, readiness=Ready(message, REPLACED))


def _has_progressed(run: PipelineRun) -> bool:
    if run.state in ("Finished", "Suspended"):
        return True
    return isinstance(run.readiness, Ready) and run.runner is not None and run.runner.last_progress is not None


def _evaluate_start(problem: str) -> Readiness:
    if problem.startswith(IMAGE_ERRORS):
        return Stalled("ImagePullBackOff", problem)
    return Reconciling("DriverStarting", f"the driver is starting{f': {problem}' if problem else ''}")


def _describe_missing_driver(observed: PipelineObservations) -> str:
    conditions = (observed.application.get("status") or {}).get("conditions") or []
    failures = [it for it in conditions if it["type"] == "ReplicaFailure" and it["status"] == "True"]
    if failures:
        return f"cannot create the driver's pod: {failures[0].get('message')}"
    return "waiting for the previous driver to stop" if observed.drivers else "creating the driver's pod"


def status_fields(
    resource: Json,
    run: PipelineRun,
    application: str | None,
    lag_records: int | None,
    replacement: Replacement | None = None,
) -> dict[str, Json]:
    """A Pipeline's status without its conditions. None: unknown, left out. Reported values stay
    until another driver reports, except the rate and the lag in seconds. `application`: name of the
    SparkApplication or Deployment. `lag_records`: the lag that brokers report, also while no driver
    runs.
    """
    previous = resource.get("status") or {}
    is_same_spec = previous.get("observedGeneration") == resource["metadata"]["generation"]
    runner = run.runner
    lag = lag_records if lag_records is not None else (runner.lag_records if runner else previous.get("lagRecords"))
    last_error = run.error or (previous.get("lastError") if is_same_spec else None) or ""
    return {
        "state": run.state,
        "inputRowsPerSecond": runner.input_rows_per_second if runner and run.state == "Running" else None,
        "lagRecords": lag,
        "lagSeconds": runner.lag_seconds if runner else (0.0 if lag == 0 else None),
        "rejectedRows": list(runner.rejected) if runner and runner.rejected else previous.get("rejectedRows"),
        "lastProgress": (runner and runner.last_progress) or previous.get("lastProgress"),
        "lastError": last_error[:MAX_ERROR_LENGTH] or None,
        "restarts": run.restarts if run.restarts is not None else previous.get("restarts"),
        "application": application or previous.get("application"),
        "replacement": _replacement_field(resource, replacement),
    }


def _replacement_field(resource: Json, replacement: Replacement | None) -> Json | None:
    """Keeps the last report while nothing can be observed, because another Pipeline stays stopped
    by it.
    """
    if replacement is not None:
        return replacement.to_json()
    is_replacing = "replaces" in (resource.get("spec") or {})
    return (resource.get("status") or {}).get("replacement") if is_replacing else None
