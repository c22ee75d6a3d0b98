"""What is to be said of a Pipeline: its state, and whether it is as wished."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan.conditions import Current, Stuck, Verdict, Working
from ottla_operator.plan.pipeline.seen import Pod, Told
from ottla_operator.resources.model import Json

HOPELESS: Final = (2, 3)
"""Exit codes of the runner that say: another try will not help (`python -m ottla_spark`)."""
MANY: Final = 3
"""Falls in a row after which somebody has to look."""
NO_IMAGE: Final = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName")

COMPLETED: Final = Current("it has read what there was, and ended.", "Completed")
SUSPENDED: Final = Current("it is suspended; its checkpoint is kept.", "Suspended")
SUSPENDING: Final = Working("Suspending", "the batch in flight may end; then the driver stops")


@dataclass(frozen=True, slots=True)
class Run:
    """`state`: of the status. `error`: what last went wrong, in words; empty when nothing is known."""

    state: str
    verdict: Verdict
    error: str = ""
    restarts: int | None = None
    told: Told | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """`settings`: the ConfigMap that a driver should have been started with. `drivers`, `executors`: pods (see seen.py). `told`: by the first driver."""

    settings: str
    suspended: bool
    drivers: Sequence[Pod] = ()
    executors: Sequence[Pod] = ()
    told: Told | None = None
    finished: bool = False
    application: Json = field(default_factory=dict)

    @property
    def driver(self) -> Pod | None:
        """The one that should be there."""
        return next((it for it in self.drivers if it.settings == self.settings and not it.leaving), None)


def of_driver(facts: Facts) -> Run:
    """Of a Deployment."""
    if facts.suspended:
        return Run("Suspended", SUSPENDING if facts.drivers else SUSPENDED)
    if facts.finished:
        return Run("Finished", COMPLETED, told=facts.told)
    pod = facts.driver
    if pod is None:
        return Run("Starting", Working("Starting", _making(facts)))
    return _of_pod(pod, facts, pod.restarts)


def of_application(facts: Facts) -> Run:
    """Of a SparkApplication, by the states that its operator gives it."""
    status = facts.application.get("status") or {}
    told = status.get("applicationState") or {}
    state, said = str(told.get("state") or ""), str(told.get("errorMessage") or "")
    restarts = max(0, int(status.get("executionAttempts") or 0) - 1)
    if facts.suspended:
        gone = state in ("", "SUSPENDED", "COMPLETED", "FAILED") and not facts.drivers
        return Run("Suspended", SUSPENDED if gone else SUSPENDING, restarts=restarts)
    pod = facts.driver
    why = (pod.said if pod else "") or said
    match state:
        case "COMPLETED":
            return Run("Finished", COMPLETED, restarts=restarts, told=facts.told)
        case "FAILED":
            return Run("Failed", Stuck("Failed", _with(why, "it has failed")), why, restarts)
        case "SUBMISSION_FAILED":
            return Run("Failing", Working("SubmissionFailed", _with(why, "it could not be submitted")), why, restarts)
        case "FAILING" | "PENDING_RERUN" | "INVALIDATING":
            return _fallen(why, pod.code if pod else None, restarts + (state == "FAILING"))
        case "RUNNING" if pod is not None:
            return _of_pod(pod, facts, restarts)
        case "" | "RESUMING":
            return Run("Pending", Working("Submitting", "the Spark operator has yet to submit it"), restarts=restarts)
    trouble = pod.trouble if pod else ""
    return Run("Starting", _starting(trouble), restarts=restarts)


def _of_pod(pod: Pod, facts: Facts, restarts: int) -> Run:
    told = facts.told
    # A pod that Spark has made is ready as soon as its JVM is there.
    running = told.state in ("running", "stopping", "finished") if told else pod.ready
    if not running and pod.code is not None:
        return _fallen(pod.said, pod.code, restarts)
    if not running:
        return Run("Starting", _starting(pod.trouble), restarts=restarts, told=told)
    error = (told and told.error) or ""
    trouble = next((it.trouble for it in facts.executors if it.trouble), "")
    if trouble and not any(it.phase == "Running" for it in facts.executors):
        why = f"no executor runs: {trouble}"
        return Run("Running", Working("NoExecutor", why), error or why, restarts, told)
    return Run("Running", Current("it runs."), error, restarts, told)


def _fallen(why: str, code: int | None, falls: int) -> Run:
    said = _with(why, "the driver has fallen")
    if code in HOPELESS:
        return Run("Failed", Stuck("BadPipeline", said), why, falls)
    if falls >= MANY:
        return Run("Failing", Stuck("CrashLoop", f"the driver has fallen {falls} times: {said}"), why, falls)
    return Run("Failing", Working("Restarting", said), why, falls)


def _starting(trouble: str) -> Verdict:
    if trouble.startswith(NO_IMAGE):
        return Stuck("NoImage", trouble)
    return Working("Starting", f"the driver starts{f': {trouble}' if trouble else ''}")


def _making(facts: Facts) -> str:
    conditions = (facts.application.get("status") or {}).get("conditions") or []
    refused = [str(it.get("message")) for it in conditions if it["type"] == "ReplicaFailure" and it["status"] == "True"]
    if refused:
        return f"the driver's pod cannot be made: {refused[0]}"
    return "the driver before it stops first" if facts.drivers else "the driver's pod is being made"


def _with(why: str, otherwise: str) -> str:
    return why or otherwise
