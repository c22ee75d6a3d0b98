"""What the pods of a Pipeline say of themselves: by the kubelet in their status, and by the runner where it answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla_operator.plan.observed_pods import last_line, pod_problems
from ottla_operator.plan.pipeline import names
from ottla_operator.resources.model import Json

LOOPS: Final = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class DriverPod:
    """`settings`: the ConfigMap that it was started with. `address`: host:port where its runner answers; empty before it has one. `restarts`: of its
    container. `code`: the exit code of the container's last end; None when it never ended. `said`: its last words. `trouble`: what keeps it from
    running, in words."""

    name: str
    is_ready: bool
    is_terminating: bool
    phase: str
    settings: str
    address: str
    restarts: int
    exit_code: int | None
    last_message: str
    problem: str


@dataclass(frozen=True, slots=True)
class RunnerStatus:
    """What a runner answers; see `ottla_spark.now`."""

    state: str
    error: str | None = None
    last_progress: str | None = None
    input_rows_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None

    @classmethod
    def parse(cls, it: Mapping[str, Json]) -> "RunnerStatus":
        """KeyError when that is no answer of a runner."""
        return cls(
            str(it["state"]),
            it.get("error"),
            it.get("lastProgress"),
            it.get("inputRowsPerSecond"),
            it.get("lagRecords"),
            it.get("lagSeconds"),
        )


def driver_pods(pods: Iterable[Json]) -> list[DriverPod]:
    """The newest first; those that leave last."""
    found = [it for it in pods if _component(it) == names.DRIVER]
    found.sort(key=lambda it: str(it["metadata"].get("creationTimestamp", "")), reverse=True)
    return sorted(map(_pod, found), key=lambda it: it.is_terminating)


def executor_pods(pods: Iterable[Json]) -> list[DriverPod]:
    """Those that have not ended."""
    found = [_pod(it) for it in pods if _component(it) == names.EXECUTOR]
    return [it for it in found if it.phase not in ("Succeeded", "Failed") and not it.is_terminating]


def _component(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.COMPONENT, ""))


def _pod(pod: Json) -> DriverPod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    conditions = {it["type"]: it["status"] for it in status.get("conditions") or []}
    container: Json = next(iter(status.get("containerStatuses") or []), {})
    ended = _ended(container)
    ip = status.get("podIP") or ""
    return DriverPod(
        name=metadata["name"],
        is_ready=conditions.get("Ready") == "True" and "deletionTimestamp" not in metadata,
        is_terminating="deletionTimestamp" in metadata,
        phase=status.get("phase") or "",
        settings=next((it["configMap"]["name"] for it in spec.get("volumes") or [] if it["name"] == "pipeline"), ""),
        address=f"{f'[{ip}]' if ':' in ip else ip}:{_port(spec)}" if ip else "",
        restarts=container.get("restartCount") or 0,
        exit_code=ended.get("exitCode"),
        last_message=last_line(ended.get("message")) or ended.get("reason") or "",
        problem="; ".join(dict.fromkeys(it for it in pod_problems(status) if not it.startswith(LOOPS))),
    )


def _ended(container: Json) -> Json:
    now = (container.get("state") or {}).get("terminated")
    return now or (container.get("lastState") or {}).get("terminated") or {}


def _port(spec: Json) -> int:
    ports = [port for it in spec["containers"] for port in it.get("ports") or []]
    return next((int(it["containerPort"]) for it in ports if it.get("name") == names.HTTP_PORT), 0)
