"""Conditions of a resource, as kstatus, `kubectl wait`, Flux and Argo CD read them.

Invariants: Ready, Reconciling and Stalled are always present, and each carries the generation that
was evaluated. Exactly one of them is True. Ready: the resource matches its spec. Reconciling:
work is under way that needs no person. Stalled: a person has to change something. A condition's
lastTransitionTime changes only with its status. `plan/reasons.py` lists every reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla_operator.resources.model import Json

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
MAX_MESSAGE_LENGTH: Final = 4096


@dataclass(frozen=True, slots=True)
class Ready:
    """The resource matches its spec."""

    message: str
    reason: str = "Reconciled"


@dataclass(frozen=True, slots=True)
class Reconciling:
    """Work is in progress, or waits for a change that needs no person."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """A person has to change something."""

    reason: str
    message: str


Readiness: TypeAlias = Ready | Reconciling | Stalled


@dataclass(frozen=True, slots=True)
class ExtraCondition:
    """A condition besides Ready, Reconciling and Stalled, such as Available."""

    type: str
    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """`generation`: generation of the spec that was evaluated."""

    readiness: Readiness
    generation: int
    extra: Sequence[ExtraCondition] = field(default_factory=tuple)


def render_conditions(
    conditions: Conditions, previous: Iterable[Mapping[str, Json]], now: str
) -> list[dict[str, Json]]:
    """`status.conditions`. `previous`: those that the resource has; other types are removed. `now`:
    RFC 3339.
    """
    previous_by_type = {it.get("type"): it for it in previous}
    return [
        _render(type_, is_true, reason, message, conditions.generation, previous_by_type.get(type_), now)
        for type_, is_true, reason, message in _rows(conditions)
    ]


def _rows(conditions: Conditions) -> list[tuple[str, bool, str, str]]:
    readiness = conditions.readiness
    reconciling, stalled = isinstance(readiness, Reconciling), isinstance(readiness, Stalled)
    progress = readiness if reconciling else Ready("No change is in progress.", "Idle")
    health = readiness if stalled else Ready("Nothing needs a person.", "Healthy")
    return [
        (READY, isinstance(readiness, Ready), readiness.reason, readiness.message),
        (RECONCILING, reconciling, progress.reason, progress.message),
        (STALLED, stalled, health.reason, health.message),
        *((it.type, it.is_true, it.reason, it.message) for it in conditions.extra),
    ]


def _render(
    type_: str, is_true: bool, reason: str, message: str, generation: int, previous: Mapping[str, Json] | None, now: str
) -> dict[str, Json]:
    status = "True" if is_true else "False"
    since = previous.get("lastTransitionTime") if previous and previous.get("status") == status else None
    return {
        "type": type_,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message if len(message) <= MAX_MESSAGE_LENGTH else message[: MAX_MESSAGE_LENGTH - 1] + "…",
    }


def find_condition(resource: Mapping[str, Json], type_: str) -> Json:
    """The condition of this type; {} if the resource has none."""
    conditions = (resource.get("status") or {}).get("conditions") or []
    return next((it for it in conditions if it["type"] == type_), {})


def kstatus(resource: Mapping[str, Json]) -> str:
    """The status that the kstatus library computes for a custom resource: Current, InProgress,
    Failed or Terminating (sigs.k8s.io/cli-utils/pkg/kstatus, generic rules)."""
    metadata, status = resource.get("metadata") or {}, resource.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata.get("generation"):
        return "InProgress"
    found = {it["type"]: it["status"] for it in status.get("conditions") or []}
    if found.get(RECONCILING) == "True":
        return "InProgress"
    if found.get(STALLED) == "True":
        return "Failed"
    return "InProgress" if found.get(READY) in ("False", "Unknown") else "Current"


def describe_unready(resource: Mapping[str, Json]) -> str:
    """Why a resource is not Current (see `kstatus`), or has no condition Ready. A Ready that is
    True is then that of an earlier generation.
    """
    if kstatus(resource) == "Terminating":
        return "it is being deleted"
    ready = find_condition(resource, READY)
    if ready.get("status") == "True":
        return "its last change is not reconciled yet"
    return ready.get("message") or "it is not reconciled yet"
