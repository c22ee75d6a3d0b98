"""What the pods of a Pipeline say of themselves: by the kubelet in their status, and by the runner where it answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla_operator.plan.pipeline import names
from ottla_operator.plan.pods_seen import last_line, troubles
from ottla_operator.resources.model import Json

LOOPS: Final = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class Pod:
    """`settings`: the ConfigMap that it was started with. `address`: host:port where its runner answers; empty before it has one. `restarts`: of its
    container. `code`: the exit code of the container's last end; None when it never ended. `said`: its last words. `trouble`: what keeps it from
    running, in words."""

    name: str
    ready: bool
    leaving: bool
    phase: str
    settings: str
    address: str
    restarts: int
    code: int | None
    said: str
    trouble: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a runner answers; see `ottla_spark.now`."""

    state: str
    error: str | None = None
    last_progress: str | None = None
    input_rows_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None

    @classmethod
    def of(cls, it: Mapping[str, Json]) -> "Told":
        """KeyError when that is no answer of a runner."""
        return cls(
            str(it["state"]),
            it.get("error"),
            it.get("lastProgress"),
            it.get("inputRowsPerSecond"),
            it.get("lagRecords"),
            it.get("lagSeconds"),
        )


def drivers(pods: Iterable[Json]) -> list[Pod]:
    """The newest first; those that leave last."""
    found = [it for it in pods if _component(it) == names.DRIVER]
    found.sort(key=lambda it: str(it["metadata"].get("creationTimestamp", "")), reverse=True)
    return sorted(map(_pod, found), key=lambda it: it.leaving)


def executors(pods: Iterable[Json]) -> list[Pod]:
    """Those that have not ended."""
    found = [_pod(it) for it in pods if _component(it) == names.EXECUTOR]
    return [it for it in found if it.phase not in ("Succeeded", "Failed") and not it.leaving]


def _component(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.COMPONENT, ""))


def _pod(pod: Json) -> Pod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    conditions = {it["type"]: it["status"] for it in status.get("conditions") or []}
    container: Json = next(iter(status.get("containerStatuses") or []), {})
    ended = _ended(container)
    ip = status.get("podIP") or ""
    return Pod(
        name=metadata["name"],
        ready=conditions.get("Ready") == "True" and "deletionTimestamp" not in metadata,
        leaving="deletionTimestamp" in metadata,
        phase=status.get("phase") or "",
        settings=next((it["configMap"]["name"] for it in spec.get("volumes") or [] if it["name"] == "pipeline"), ""),
        address=f"{f'[{ip}]' if ':' in ip else ip}:{_port(spec)}" if ip else "",
        restarts=container.get("restartCount") or 0,
        code=ended.get("exitCode"),
        said=last_line(ended.get("message")) or ended.get("reason") or "",
        trouble="; ".join(dict.fromkeys(it for it in troubles(status) if not it.startswith(LOOPS))),
    )


def _ended(container: Json) -> Json:
    now = (container.get("state") or {}).get("terminated")
    return now or (container.get("lastState") or {}).get("terminated") or {}


def _port(spec: Json) -> int:
    ports = [port for it in spec["containers"] for port in it.get("ports") or []]
    return next((int(it["containerPort"]) for it in ports if it.get("name") == names.HTTP_PORT), 0)
