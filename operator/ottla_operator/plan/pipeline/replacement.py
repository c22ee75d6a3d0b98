"""How a Pipeline replaces another: it catches up beside it, is compared with it, and takes over.

Invariant: the old Pipeline is stopped only after the new one has caught up, and the take-over is
complete only when the new one has processed every record that the old one had. Both have read the
same topics from their own checkpoints all the time, so no record is missed between them. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_operator.plan.pipeline.status import RunnerStatus
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.replacement import Comparison, Phase, Replacement, TakeOver

STOPS_OLD: Final = ("TakingOver", "TakenOver")
"""Phases in which the old Pipeline is not to run."""
_WITHOUT_TARGET: Final = ("console", "foreach")

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class ReplacementObservations:
    """`previous`: the phase that was reported last, empty before the first. `has_caught_up`: the
    new Pipeline runs and has caught up. `comparisons`: the last of each sink. `old_has_stopped`: no
    driver of the old Pipeline runs. `offsets`, `old_offsets`: what both have committed for the
    topics that both read; None if no broker could be asked.
    """

    take_over: TakeOver
    previous: Phase | str
    has_caught_up: bool
    comparisons: Sequence[Comparison]
    old_has_stopped: bool
    offsets: Offsets | None
    old_offsets: Offsets | None


def next_phase(observed: ReplacementObservations) -> Phase:
    """The phase now. A take-over that has begun is not given up when the new Pipeline falls behind
    later, because the old one has stopped; `takeOver: Manual` takes it back.
    """
    if observed.take_over == "Manual" or observed.previous not in STOPS_OLD:
        if not observed.has_caught_up:
            return "CatchingUp"
        return "TakingOver" if _may_take_over(observed) else "CaughtUp"
    if observed.previous == "TakingOver" and not (observed.old_has_stopped and _has_passed_old(observed)):
        return "TakingOver"
    return "TakenOver"


def _may_take_over(observed: ReplacementObservations) -> bool:
    if observed.take_over == "WhenEqual":
        return bool(observed.comparisons) and all(it.is_equal for it in observed.comparisons)
    return observed.take_over == "WhenCaughtUp"


def _has_passed_old(observed: ReplacementObservations) -> bool:
    if observed.offsets is None or observed.old_offsets is None:
        return False
    return all(observed.offsets.get(it, 0) >= end for it, end in observed.old_offsets.items())


def build_replacement(
    phase: Phase, runner: RunnerStatus | None, previous: Replacement | None, old_offsets: Offsets | None
) -> Replacement:
    """The `replacement` of the status. It keeps comparisons when a driver restarts, and the offsets
    when the old Pipeline is deleted.
    """
    comparisons = (runner.comparisons if runner else ()) or (previous and previous.comparisons) or None
    stopped_at = {f"{topic}-{partition}": end for (topic, partition), end in sorted((old_offsets or {}).items())}
    return Replacement(
        phase=phase,
        seconds_left=runner.catch_up_seconds_left if runner and phase == "CatchingUp" else None,
        comparisons=tuple(comparisons) if comparisons else None,
        stopped_at=(stopped_at or (previous and previous.stopped_at) or None) if phase == "TakenOver" else None,
    )


def find_successor(pipelines: Iterable[Json], name: str) -> str:
    """Name of the Pipeline that has taken over from this one, or is about to; empty if there is
    none. `pipelines`: those of the namespace, of any validity.
    """
    for pipeline in pipelines:
        replaces = (pipeline.get("spec") or {}).get("replaces") or {}
        phase = ((pipeline.get("status") or {}).get("replacement") or {}).get("phase")
        takes_over = replaces.get("takeOver", "Manual") != "Manual" and phase in STOPS_OLD
        if replaces.get("name") == name and takes_over and "deletionTimestamp" not in pipeline["metadata"]:
            return str(pipeline["metadata"]["name"])
    return ""


def find_conflict(old: Pipeline, new: Pipeline) -> str:
    """The reason why the two versions cannot run at the same time, with the field that has to
    change; empty if they can.
    """
    if old.name == new.name:
        return "spec.replaces.name: a Pipeline cannot replace itself"
    if old.spec.cluster_ref != new.spec.cluster_ref:
        return f"spec.clusterRef.name: Pipeline {old.name} reads Cluster {old.spec.cluster_ref.name}"
    if old.consumer_group == new.consumer_group:
        return f"spec.consumerGroup: {new.consumer_group} is that of Pipeline {old.name}; choose another"
    used = {it.target for it in old.spec.sinks}
    for index, sink in enumerate(new.spec.sinks):
        kind, name = sink.target
        if (kind, name) in used and kind not in _WITHOUT_TARGET:
            where = f"spec.sinks[{index}].{kind}"
            return f"{where}: {name} is written by Pipeline {old.name}; a new version needs a target of its own"
    return ""


def describe_phase(phase: Phase, old: str, comparisons: Sequence[Comparison]) -> str:
    """The message of an event."""
    compared = "; ".join(map(str, comparisons))
    if phase == "CaughtUp":
        return f"has caught up with Pipeline {old}{f': {compared}' if compared else ''}"
    if phase == "TakenOver":
        return f"has taken over from Pipeline {old}, which has stopped"
    return f"is taking over from Pipeline {old}" if phase == "TakingOver" else f"is catching up with Pipeline {old}"
