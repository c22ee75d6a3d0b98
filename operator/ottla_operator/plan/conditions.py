"""Conditions of a resource, so that what kstatus, `kubectl wait`, Flux and Argo CD make of them is true at every moment.

Invariants: Ready, Reconciling and Stalled are always there, and each names the generation that it was decided on. Ready is True only when the resource
is as its spec wishes; then neither of the others is. Otherwise Ready is False, and exactly one of the others says why: Reconciling when it goes on by
itself, Stalled when a person has to do something. A condition's time changes only with its status.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla_operator.resources.model import Json

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
LONGEST_MESSAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class ExtraCondition:
    """A condition of its own kind beside the three, such as Serving."""

    type: str
    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Ready:
    """All is as wished."""

    message: str
    reason: str = "AsWished"


@dataclass(frozen=True, slots=True)
class Reconciling:
    """It is being brought there, by itself."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """A person has to change something."""

    reason: str
    message: str


Readiness: TypeAlias = Ready | Reconciling | Stalled


@dataclass(frozen=True, slots=True)
class Conditions:
    """`generation`: of the spec that was looked at."""

    readiness: Readiness
    generation: int
    extra: Sequence[ExtraCondition] = field(default_factory=tuple)


def render_conditions(judged: Conditions, before: Iterable[Mapping[str, Json]], now: str) -> list[dict[str, Json]]:
    """`before`: conditions as they are. `now`: RFC 3339. Types that are neither ours nor judged any more are dropped."""
    known = {it.get("type"): it for it in before}
    return [
        _condition(type_, status, reason, message, judged.generation, known.get(type_), now)
        for type_, status, reason, message in _said(judged)
    ]


def _said(judged: Conditions) -> list[tuple[str, bool, str, str]]:
    verdict = judged.readiness
    working, stuck = isinstance(verdict, Reconciling), isinstance(verdict, Stalled)
    calm = Ready("Nothing is under way.", "Idle") if not working else verdict
    sound = Ready("Nothing is in the way.", "Sound") if not stuck else verdict
    return [
        (READY, isinstance(verdict, Ready), verdict.reason, verdict.message),
        (RECONCILING, working, calm.reason, calm.message),
        (STALLED, stuck, sound.reason, sound.message),
        *((it.type, it.is_true, it.reason, it.message) for it in judged.extra),
    ]


def _condition(
    type_: str, holds: bool, reason: str, message: str, generation: int, before: Mapping[str, Json] | None, now: str
) -> dict[str, Json]:
    status = "True" if holds else "False"
    since = before.get("lastTransitionTime") if before and before.get("status") == status else None
    return {
        "type": type_,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…",
    }


def kstatus(resource: Mapping[str, Json]) -> str:
    """What the kstatus library makes of a custom resource: Current, InProgress, Failed or Terminating
    (sigs.k8s.io/cli-utils/pkg/kstatus, generic rules)."""
    metadata, status = resource.get("metadata") or {}, resource.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    seen = status.get("observedGeneration")
    if seen is not None and seen != metadata.get("generation"):
        return "InProgress"
    found = {it["type"]: it["status"] for it in status.get("conditions") or []}
    if found.get(RECONCILING) == "True":
        return "InProgress"
    if found.get(STALLED) == "True":
        return "Failed"
    return "InProgress" if found.get(READY) in ("False", "Unknown") else "Current"
