"""Reconciles Pipelines: waits for their topics, has the platform run the driver, and reports its
state.

Every decision follows from the observed state. Memory only caches it: an operator may be killed at
any time, and the next one continues.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.list_offsets import LATEST_TIMESTAMP
from ottla_broker.wire.pipeline_report import PipelineReport
from ottla_operator.kafka import groups, offsets, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.reports import report_pipeline
from ottla_operator.plan.backoff import RequeueBackoff
from ottla_operator.plan.conditions import Conditions, ExtraCondition, Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.pipeline.report import build_report
from ottla_operator.plan.pipeline.status import PipelineRun, as_replaced, debounce_run, status_fields
from ottla_operator.plan.pipeline.topic_readiness import (
    UnreadyTopic,
    find_unready_topics,
    resources_by_topic,
    source_topics,
    topics_ready_condition,
    unmanaged_sources,
)
from ottla_operator.reconcile.connection import CONNECT_TIMEOUT_S, connect_to_cluster
from ottla_operator.reconcile.platform import Blocked, Platform, PlatformError
from ottla_operator.reconcile.replacement import ReplacementReconciler, suspend_pipeline
from ottla_operator.reconcile.validation import ValidationCache, error_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.replacement import Replacement

RESYNC_S: Final = 10.0
WAIT_S: Final = 2.0
PUBLISH_S: Final = 9.0
"""Below RESYNC_S: every resync of a healthy pipeline reports it."""


@dataclass(slots=True)
class PipelineReconcileCache:
    """`message`: message of the last readiness. `pipeline`, `cluster`: as of the last reconcile
    with a valid spec. `published`: the last report to the controller, at `published_s` of the event
    loop's time.
    """

    message: str = ""
    pipeline: Pipeline | None = None
    cluster: Cluster | None = None
    published: PipelineReport | None = None
    published_s: float = 0.0
    backoff: RequeueBackoff = field(default_factory=RequeueBackoff)


@dataclass(slots=True)
class PipelineReconciler:
    """`wake`: triggers the reconcile of another Pipeline."""

    platform: Platform
    cache: WatchCache
    wake: Callable[[Key], None]
    _caches: dict[Key, PipelineReconcileCache] = field(default_factory=dict)
    _validation: ValidationCache = field(init=False)
    _replacement: ReplacementReconciler = field(init=False)

    def __post_init__(self) -> None:
        self._replacement = ReplacementReconciler(self.platform, self.cache, self.wake)
        self._validation = ValidationCache(self.platform.find_unsupported)

    async def reconcile(self, key: Key) -> float | None:
        resource = self.cache.pipelines.get(key)
        if resource is None or is_terminating(resource):
            await self._withdraw(key.name, self._caches.pop(key, None))
            self._validation.forget(key)
            await self.platform.forget_pipeline(key)
            return None
        cached = self._caches.setdefault(key, PipelineReconcileCache())
        if problems := self._validation.find_problems(key, resource):
            return await self._report(resource, cached, PipelineRun("Pending", Stalled("InvalidSpec", problems)))
        try:
            try:
                return await self._reconcile(key, resource, Pipeline.parse_stored(resource), cached)
            except PlatformError as error:
                raise Blocked.by_rejection(error) from error
        except Blocked as blocked:
            state = _reported_state(resource) if blocked.keeps_state else "Pending"
            delay_s = await self._report(resource, cached, PipelineRun(state, blocked.readiness))
            return delay_s if blocked.requeue_s is None else blocked.requeue_s

    async def report_error(self, key: Key, error: Exception) -> None:
        if (resource := self.cache.pipelines.get(key)) is not None:
            cached = self._caches.setdefault(key, PipelineReconcileCache())
            await self._report(resource, cached, PipelineRun(_reported_state(resource), error_readiness(error)))

    async def _reconcile(self, key: Key, resource: Json, pipeline: Pipeline, cached: PipelineReconcileCache) -> float:
        name = pipeline.spec.cluster_ref.name
        found = await self.platform.find_cluster(Key(key.namespace, name))
        if found is None:
            message = f"Cluster {name} does not exist in this namespace"
            raise Blocked(Reconciling("ClusterNotFound", message))
        cluster = Cluster.parse_stored(found)
        cached.pipeline, cached.cluster = pipeline, cluster
        self._replacement.check_conflict(key, pipeline)
        if replaced_by := self._replacement.find_successor(key):
            pipeline = suspend_pipeline(pipeline)
        launch = await self.platform.plan_launch(resource, pipeline, cluster)
        unready = await self._find_unready_topics(key, pipeline, cluster)
        extra = (topics_ready_condition(unready),)
        if unready and launch.starts_driver:
            message = f"no driver is started with this spec yet: {'; '.join(map(str, unready))}"
            waiting = PipelineRun(_reported_state(resource), Reconciling("WaitingForTopics", message))
            return await self._report(resource, cached, waiting, launch.application, extra)
        run = debounce_run(await launch.apply(), resource)
        if replaced_by:
            run = as_replaced(run, replaced_by)
        lag_records = await self._measure_lag(pipeline, cluster)
        replacement = await self._replacement.reconcile(key, resource, pipeline, cluster, run, lag_records)
        delay_s = await self._report(resource, cached, run, launch.application, extra, lag_records, replacement)
        is_replacing = replacement is not None and replacement.phase != "TakenOver"
        return min(delay_s, WAIT_S) if is_replacing else delay_s

    async def _find_unready_topics(self, key: Key, pipeline: Pipeline, cluster: Cluster) -> list[UnreadyTopic]:
        resources = resources_by_topic(self.cache.topics.get(Key(key.namespace, cluster.name), {}).values())
        existing: set[str] | str = set()
        if unmanaged := unmanaged_sources(pipeline, resources):
            try:
                async with connect_to_cluster(self.platform, cluster, CONNECT_TIMEOUT_S) as client:
                    existing = set(await topics.describe_topics(client, unmanaged))
            except Blocked as blocked:
                existing = blocked.readiness.message
            except KafkaError as error:
                existing = str(error)
        return find_unready_topics(pipeline, resources, existing)

    async def _measure_lag(self, pipeline: Pipeline, cluster: Cluster) -> int | None:
        """Records of the sources beyond the offsets that the pipeline has committed; None if it has
        committed none, or if no broker can be asked."""
        try:
            async with connect_to_cluster(self.platform, cluster, CONNECT_TIMEOUT_S) as client:
                return await _lag(client, pipeline.consumer_group, source_topics(pipeline))
        except (Blocked, KafkaError):
            return None

    async def _report(
        self,
        resource: Json,
        cached: PipelineReconcileCache,
        run: PipelineRun,
        application: str | None = None,
        extra: tuple[ExtraCondition, ...] = (),
        lag_records: int | None = None,
        replacement: Replacement | None = None,
    ) -> float:
        """Returns the requeue delay in seconds."""
        conditions = Conditions(run.readiness, resource["metadata"]["generation"], extra)
        fields = status_fields(resource, run, application, lag_records, replacement)
        await self.platform.write_status(resource, conditions, fields)
        await self._publish(cached, run, fields)
        message = run.readiness.message
        if cached.message != message and (isinstance(run.readiness, Stalled) or cached.message):
            is_warning = isinstance(run.readiness, Stalled) or run.state in ("Failing", "Failed")
            if is_warning or isinstance(run.readiness, Ready):
                await self.platform.record_event(resource, run.readiness.reason, message, is_warning=is_warning)
        cached.message = message
        return self._delay_s(cached, run.readiness)

    async def _publish(self, cached: PipelineReconcileCache, run: PipelineRun, fields: Mapping[str, Json]) -> None:
        """Reports the pipeline's state to the active controller, for the brokers' console: when it
        has changed, and at least every PUBLISH_S. If no broker is reachable, the next reconcile
        retries.
        """
        if cached.pipeline is None or cached.cluster is None:
            return
        spark_ui = run.runner.spark_ui if run.runner else ""
        report = build_report(cached.pipeline, fields, run.readiness.message, spark_ui)
        now_s = asyncio.get_running_loop().time()
        if report == cached.published and now_s - cached.published_s < PUBLISH_S:
            return
        try:
            async with connect_to_cluster(self.platform, cached.cluster, CONNECT_TIMEOUT_S) as client:
                await report_pipeline(client, cached.pipeline.name, report)
        except (Blocked, KafkaError):
            return
        cached.published, cached.published_s = report, now_s

    async def _withdraw(self, name: str, cached: PipelineReconcileCache | None) -> None:
        """Removes the pipeline's report from the active controller, where one is reachable."""
        if cached is None or cached.cluster is None or cached.published is None:
            return
        with suppress(Blocked, KafkaError, PlatformError):
            async with connect_to_cluster(self.platform, cached.cluster, CONNECT_TIMEOUT_S) as client:
                await report_pipeline(client, name, None)

    def _delay_s(self, cached: PipelineReconcileCache, readiness: Readiness) -> float:
        shortest_s = WAIT_S if isinstance(readiness, Reconciling) else RESYNC_S
        return cached.backoff.delay_s(readiness, asyncio.get_running_loop().time(), shortest_s, RESYNC_S)


def _reported_state(resource: Json) -> str:
    return str((resource.get("status") or {}).get("state") or "Pending")


async def _lag(client: KafkaClient, group: str, source_names: Iterable[str]) -> int | None:
    committed = await groups.list_group_offsets(client, group)
    found = await topics.describe_topics(client, source_names)
    ends = await offsets.list_offsets(client, found.values(), LATEST_TIMESTAMP)
    if not any(topic in found for topic, _ in committed):
        return None
    return sum(max(0, end - committed.get(partition, 0)) for partition, end in ends.items())
