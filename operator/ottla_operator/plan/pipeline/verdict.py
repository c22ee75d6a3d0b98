"""What is to be said of a Pipeline: its state, and whether it is as wished."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan.conditions import Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.pipeline.seen import DriverPod, RunnerStatus
from ottla_operator.resources.model import Json

PERMANENT_EXIT_CODES: Final = (2, 3)
"""Exit codes of the runner that say: another try will not help (`python -m ottla_spark`)."""
MANY: Final = 3
"""Falls in a row after which somebody has to look."""
NO_IMAGE: Final = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName")

COMPLETED: Final = Ready("it has read what there was, and ended.", "Completed")
SUSPENDED: Final = Ready("it is suspended; its checkpoint is kept.", "Suspended")
SUSPENDING: Final = Reconciling("Suspending", "the batch in flight may end; then the driver stops")


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """`state`: of the status. `error`: what last went wrong, in words; empty when nothing is known."""

    state: str
    readiness: Readiness
    error: str = ""
    restarts: int | None = None
    runner: RunnerStatus | None = None


@dataclass(frozen=True, slots=True)
class PipelineObservations:
    """`settings`: the ConfigMap that a driver should have been started with. `drivers`, `executors`: pods (see seen.py). `told`: by the first driver."""

    settings: str
    is_suspended: bool
    drivers: Sequence[DriverPod] = ()
    executors: Sequence[DriverPod] = ()
    runner: RunnerStatus | None = None
    is_finished: bool = False
    application: Json = field(default_factory=dict)

    @property
    def driver(self) -> DriverPod | None:
        """The one that should be there."""
        return next((it for it in self.drivers if it.settings == self.settings and not it.is_terminating), None)


def evaluate_driver(facts: PipelineObservations) -> PipelineRun:
    """Of a Deployment."""
    if facts.is_suspended:
        return PipelineRun("Suspended", SUSPENDING if facts.drivers else SUSPENDED)
    if facts.is_finished:
        return PipelineRun("Finished", COMPLETED, runner=facts.runner)
    pod = facts.driver
    if pod is None:
        return PipelineRun("Starting", Reconciling("Starting", _making(facts)))
    return _of_pod(pod, facts, pod.restarts)


def evaluate_application(facts: PipelineObservations) -> PipelineRun:
    """Of a SparkApplication, by the states that its operator gives it."""
    status = facts.application.get("status") or {}
    told = status.get("applicationState") or {}
    state, said = str(told.get("state") or ""), str(told.get("errorMessage") or "")
    restarts = max(0, int(status.get("executionAttempts") or 0) - 1)
    if facts.is_suspended:
        gone = state in ("", "SUSPENDED", "COMPLETED", "FAILED") and not facts.drivers
        return PipelineRun("Suspended", SUSPENDED if gone else SUSPENDING, restarts=restarts)
    pod = facts.driver
    why = (pod.last_message if pod else "") or said
    match state:
        case "COMPLETED":
            return PipelineRun("Finished", COMPLETED, restarts=restarts, runner=facts.runner)
        case "FAILED":
            return PipelineRun("Failed", Stalled("Failed", _with(why, "it has failed")), why, restarts)
        case "SUBMISSION_FAILED":
            return PipelineRun(
                "Failing", Reconciling("SubmissionFailed", _with(why, "it could not be submitted")), why, restarts
            )
        case "FAILING" | "PENDING_RERUN" | "INVALIDATING":
            return _fallen(why, pod.exit_code if pod else None, restarts + (state == "FAILING"))
        case "RUNNING" if pod is not None:
            return _of_pod(pod, facts, restarts)
        case "" | "RESUMING":
            return PipelineRun(
                "Pending", Reconciling("Submitting", "the Spark operator has yet to submit it"), restarts=restarts
            )
    trouble = pod.problem if pod else ""
    return PipelineRun("Starting", _starting(trouble), restarts=restarts)


def _of_pod(pod: DriverPod, facts: PipelineObservations, restarts: int) -> PipelineRun:
    told = facts.runner
    # A pod that Spark has made is ready as soon as its JVM is there.
    running = told.state in ("running", "stopping", "finished") if told else pod.is_ready
    if not running and pod.exit_code is not None:
        return _fallen(pod.last_message, pod.exit_code, restarts)
    if not running:
        return PipelineRun("Starting", _starting(pod.problem), restarts=restarts, runner=told)
    error = (told and told.error) or ""
    trouble = next((it.problem for it in facts.executors if it.problem), "")
    if trouble and not any(it.phase == "Running" for it in facts.executors):
        why = f"no executor runs: {trouble}"
        return PipelineRun("Running", Reconciling("NoExecutor", why), error or why, restarts, told)
    return PipelineRun("Running", Ready("it runs."), error, restarts, told)


def _fallen(why: str, code: int | None, falls: int) -> PipelineRun:
    said = _with(why, "the driver has fallen")
    if code in PERMANENT_EXIT_CODES:
        return PipelineRun("Failed", Stalled("BadPipeline", said), why, falls)
    if falls >= MANY:
        return PipelineRun("Failing", Stalled("CrashLoop", f"the driver has fallen {falls} times: {said}"), why, falls)
    return PipelineRun("Failing", Reconciling("Restarting", said), why, falls)


def _starting(trouble: str) -> Readiness:
    if trouble.startswith(NO_IMAGE):
        return Stalled("NoImage", trouble)
    return Reconciling("Starting", f"the driver starts{f': {trouble}' if trouble else ''}")


def _making(facts: PipelineObservations) -> str:
    conditions = (facts.application.get("status") or {}).get("conditions") or []
    refused = [str(it.get("message")) for it in conditions if it["type"] == "ReplicaFailure" and it["status"] == "True"]
    if refused:
        return f"the driver's pod cannot be made: {refused[0]}"
    return "the driver before it stops first" if facts.drivers else "the driver's pod is being made"


def _with(why: str, otherwise: str) -> str:
    return why or otherwise
