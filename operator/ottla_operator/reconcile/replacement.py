"""Observes and reports how a Pipeline replaces another (`plan/pipeline/replacement.py`)."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import groups
from ottla_operator.plan.conditions import READY, Stalled, find_condition
from ottla_operator.plan.pipeline.replacement import (
    Offsets,
    ReplacementObservations,
    build_replacement,
    describe_phase,
    find_conflict,
    find_successor,
    next_phase,
)
from ottla_operator.plan.pipeline.status import REPLACED, SUSPENDED, PipelineRun
from ottla_operator.plan.pipeline.topic_readiness import source_topics
from ottla_operator.reconcile.connection import CONNECT_TIMEOUT_S, connect_to_cluster
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.replacement import Replacement, Replaces


@dataclass(slots=True)
class ReplacementReconciler:
    """`wake`: triggers the reconcile of another Pipeline."""

    platform: Platform
    cache: WatchCache
    wake: Callable[[Key], None]

    def find_successor(self, key: Key) -> str:
        """Name of the Pipeline that has taken over from this one, or is about to; empty if there is
        none.
        """
        return find_successor(
            (it for at, it in self.cache.pipelines.items() if at.namespace == key.namespace), key.name
        )

    def check_conflict(self, key: Key, pipeline: Pipeline) -> None:
        """Raises Blocked if the Pipeline cannot run beside the one that it replaces: they share a
        consumer group or a target, or read different Clusters.
        """
        if pipeline.spec.replaces is None:
            return
        old = self._find_old(key, pipeline.spec.replaces)
        if old is not None and (conflict := find_conflict(Pipeline.parse_stored(old), pipeline)):
            raise Blocked(Stalled("ReplacementConflict", conflict))

    async def reconcile(
        self, key: Key, resource: Json, pipeline: Pipeline, cluster: Cluster, run: PipelineRun, lag_records: int | None
    ) -> Replacement | None:
        """Progress of the replacement; None if the Pipeline replaces none. A change of phase is
        recorded as an event and triggers a reconcile of the old Pipeline.
        """
        if (replaces := pipeline.spec.replaces) is None:
            return None
        stored = (resource.get("status") or {}).get("replacement")
        previous = Replacement.parse(stored) if stored else None
        is_stopping = previous is not None and previous.phase == "TakingOver"
        old = self._find_old(key, replaces)
        new_offsets, old_offsets = await self._read_offsets(cluster, pipeline, old) if is_stopping else (None, None)
        comparisons = (run.runner.comparisons if run.runner else ()) or (previous and previous.comparisons) or ()
        has_caught_up = run.state in ("Running", "Finished") and (
            lag_records == 0 or (run.runner is not None and run.runner.has_caught_up)
        )
        observed = ReplacementObservations(
            take_over=replaces.take_over,
            previous=previous.phase if previous else "",
            has_caught_up=has_caught_up,
            comparisons=comparisons,
            old_has_stopped=old is None or _has_stopped(old),
            offsets=new_offsets,
            old_offsets=old_offsets,
        )
        phase = next_phase(observed)
        if phase != observed.previous:
            message = describe_phase(phase, replaces.name, comparisons)
            await self.platform.record_event(resource, "ReplacementProgress", message)
            self.wake(Key(key.namespace, replaces.name))
        return build_replacement(phase, run.runner, previous, old_offsets)

    def _find_old(self, key: Key, replaces: Replaces) -> Json | None:
        return self.cache.pipelines.get(Key(key.namespace, replaces.name))

    async def _read_offsets(
        self, cluster: Cluster, new: Pipeline, old: Json | None
    ) -> tuple[Offsets | None, Offsets | None]:
        """Committed offsets of the new and of the old Pipeline, for topics that both read. Empty if
        the old one is gone; None if they cannot be read.
        """
        if old is None:
            return {}, {}
        replaced = Pipeline.parse_stored(old)
        shared = {*source_topics(new)} & {*source_topics(replaced)}
        try:
            async with connect_to_cluster(self.platform, cluster, CONNECT_TIMEOUT_S) as client:
                found = [await groups.list_group_offsets(client, it.consumer_group) for it in (new, replaced)]
        except (Blocked, KafkaError):
            return None, None
        of_new, of_old = ({it: end for it, end in ends.items() if it[0] in shared} for ends in found)
        return of_new, of_old


def suspend_pipeline(pipeline: Pipeline) -> Pipeline:
    """The Pipeline with `spec.state: suspended`."""
    return structs.replace(pipeline, spec=structs.replace(pipeline.spec, state="suspended"))


def _has_stopped(resource: Json) -> bool:
    ready = find_condition(resource, READY)
    return ready.get("status") == "True" and ready.get("reason") in (SUSPENDED.reason, REPLACED)
