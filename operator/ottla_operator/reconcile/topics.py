"""Reconciles Topics, all of one Cluster together: one request describes all of them, and many
topics are changed at a time."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.backoff import RequeueBackoff
from ottla_operator.plan.conditions import Readiness, Reconciling, Stalled
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.plan.topic_lake import lake_pipeline, lake_pipeline_name, lake_status
from ottla_operator.plan.topics import (
    ObservedTopic,
    TopicResource,
    UnsatisfiableSpec,
    evaluate_topic,
    plan_topic_changes,
    topic_owners,
)
from ottla_operator.reconcile import topic_changes
from ottla_operator.reconcile.concurrency import for_each
from ottla_operator.reconcile.connection import connect_to_cluster
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.reconcile.status_report import report_status
from ottla_operator.reconcile.topic_deletion import TopicDeletion
from ottla_operator.reconcile.validation import error_readiness, rejected_readiness
from ottla_operator.reconcile.watch_cache import Key, WatchCache, is_terminating
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.topic import Topic

RESYNC_S: Final = 10.0
RETRY_S: Final = 1.0
WAIT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 30.0
MAX_UNUSED_RESOURCES: Final = 1000
TRANSIENT_ERRORS: Final = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_controller,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.reassignment_in_progress,
        ErrorCode.topic_already_exists,  # an answer was lost, or a mirror has created it
        ErrorCode.broker_not_available,
        ErrorCode.invalid_replication_factor,  # fewer brokers are up than the Cluster asks for
    }
)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """A Topic after its reconcile. `observed`: None if its topic does not exist, or if that is
    unknown.
    """

    resource: TopicResource
    observed: ObservedTopic | None
    readiness: Readiness

    @property
    def deletion_record(self) -> DeletionRecord | None:
        """The deletion record that must be stored before the Topic may be Ready; None unless its
        topic is deleted with it.
        """
        if self.observed is None or not self.resource.has_delete_policy or self.resource.parsed is None:
            return None
        return DeletionRecord(self.resource.name, self.observed.name, self.observed.topic_id)


@dataclass(slots=True)
class TopicReconciler:
    platform: Platform
    cache: WatchCache
    _resources: dict[tuple[str, int], TopicResource] = field(default_factory=dict)
    """Parsed resources by uid and generation, so that each spec is validated once."""
    _backoffs: dict[Key, RequeueBackoff] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> float | None:
        bodies = [it for it in self.cache.topics.get(key, {}).values() if not is_terminating(it)]
        resources = [self._resource(it) for it in bodies]
        self._forget_unused(len(resources))
        cluster = await self.platform.find_cluster(key)
        if cluster is None or is_terminating(cluster):
            self.cache.deleted_topics.pop(key, None)  # deletion records are deleted with the Cluster
            message = f"Cluster {key.name} does not exist or is being deleted"
            await self._report_all(resources, Reconciling("ClusterNotFound", message))
            return WAIT_S if resources else None
        deletion = await TopicDeletion.load(self.platform, self.cache, key, cluster)
        await deletion.update(resources)
        if not resources and not deletion.records:
            self._backoffs.pop(key, None)
            return None
        try:
            async with connect_to_cluster(self.platform, Cluster.parse_stored(cluster), CONNECT_TIMEOUT_S) as client:
                return await self._reconcile(client, key, resources, deletion, cluster)
        except Blocked as blocked:
            await self._report_all(resources, blocked.readiness)
            return WAIT_S

    async def report_error(self, key: Key, error: Exception) -> None:
        resources = [self._resource(it) for it in self.cache.topics.get(key, {}).values()]
        await self._report_all(resources, error_readiness(error))

    async def _reconcile(
        self,
        client: KafkaClient,
        key: Key,
        resources: Sequence[TopicResource],
        deletion: TopicDeletion,
        cluster: Json,
    ) -> float:
        """Deletes topics whose resources are deleted, brings the others to their specs and reports.
        Returns the requeue delay in seconds."""
        deleted_ids = await deletion.delete_topics(client, resources)
        owners = topic_owners(resources)
        observed = await _observe(client, [it.parsed for it in owners.values() if it.parsed], deleted_ids)
        delays_s = [WAIT_S] if deletion.has_undeleted_topics else []

        async def reconcile_one(resource: TopicResource) -> TopicResult:
            if resource.parsed is None or owners.get(resource.parsed.topic_name) is not resource:
                result = TopicResult(resource, None, evaluate_topic(resource, None, (), owners))
            else:
                result = await self._apply(client, resource, observed, cluster["spec"]["replicas"])
            if deletion.is_recorded(resource, result.deletion_record):
                delays_s.append(await self._report(resource, result.observed, result.readiness))
            return result

        results = await for_each(resources, reconcile_one)
        unrecorded = [it for it in results if not deletion.is_recorded(it.resource, it.deletion_record)]
        error = await deletion.record((it.resource, it.deletion_record) for it in results)

        async def report_unrecorded(result: TopicResult) -> None:
            failed = Reconciling("DeletionPolicyNotRecorded", error)
            readiness = failed if error and not isinstance(result.readiness, Stalled) else result.readiness
            delays_s.append(await self._report(result.resource, result.observed, readiness))

        await for_each(unrecorded, report_unrecorded)
        waiting = frozenset(
            (it.resource.uid, it.readiness.message) for it in results if isinstance(it.readiness, Reconciling)
        )
        shortest_s = min([RESYNC_S, *delays_s, *([WAIT_S] if error else [])])
        backoff = self._backoffs.setdefault(key, RequeueBackoff())
        return backoff.delay_s(waiting, asyncio.get_running_loop().time(), shortest_s, RESYNC_S)

    async def _apply(
        self,
        client: KafkaClient,
        resource: TopicResource,
        all_observed: Mapping[str, ObservedTopic] | None,
        broker_count: int,
    ) -> TopicResult:
        """Brings one topic to its spec. `all_observed`: None where brokers refused to describe one
        of them. `broker_count`: number of brokers in the Cluster's spec."""
        topic, observed = resource.parsed, None
        assert topic is not None
        try:
            found = await topic_changes.observe_topics(client, [topic]) if all_observed is None else all_observed
            observed = found.get(topic.topic_name)
            changes = plan_topic_changes(topic, observed)
            for change in changes:
                if not isinstance(change, UnsatisfiableSpec):
                    await topic_changes.apply_topic_change(client, change)
                    message = topic_changes.describe_topic_change(change)
                    await self.platform.record_event(resource.body, change.event, message)
            if any(not isinstance(it, UnsatisfiableSpec) for it in changes):
                observed = (await topic_changes.observe_topics(client, [topic])).get(topic.topic_name)
                changes = plan_topic_changes(topic, observed)
        except KafkaError as error:
            return TopicResult(resource, observed, _readiness_of(error, topic, broker_count))
        return TopicResult(resource, observed, evaluate_topic(resource, observed, changes, {}))

    async def _reconcile_lake(self, resource: TopicResource) -> Json | None:
        """Creates, updates or deletes the Pipeline of the Topic's lake. Returns the lake's status:
        the present one if the spec is invalid, None without a lake. Raises Blocked.
        """
        if resource.parsed is None:
            return (resource.body.get("status") or {}).get("lake")
        if (pipeline := lake_pipeline(resource.parsed)) is None:
            await self.platform.delete_topic_pipeline(resource.body, lake_pipeline_name(resource.name))
            return None
        return lake_status(resource.parsed, await self.platform.ensure_topic_pipeline(resource.body, pipeline))

    def _resource(self, body: Json) -> TopicResource:
        version = (body["metadata"]["uid"], body["metadata"]["generation"])
        if version not in self._resources:
            self._resources[version] = StoredResource.parse(Topic, body)
        resource = self._resources[version]
        resource.body = body
        return resource

    def _forget_unused(self, used_count: int) -> None:
        if len(self._resources) > 2 * used_count + MAX_UNUSED_RESOURCES:
            self._resources.clear()

    async def _report_all(self, resources: Sequence[TopicResource], readiness: Readiness) -> None:
        async def report_one(resource: TopicResource) -> None:
            await self._report(resource, None, resource.unless_invalid(readiness))

        await for_each(resources, report_one)

    async def _report(self, resource: TopicResource, observed: ObservedTopic | None, readiness: Readiness) -> float:
        """Creates, updates or deletes the Pipeline of the Topic's lake, and writes the status. If
        `observed` is None, the status keeps what was known of the topic. Returns the requeue delay
        in seconds.
        """
        status = resource.body.get("status") or {}
        fields: dict[str, Json] = {key: status.get(key) for key in ("topicName", "topicId", "partitions", "replicas")}
        if observed is not None:
            fields = {
                "topicName": observed.name,
                "topicId": observed.topic_id or None,
                "partitions": observed.partitions,
                "replicas": observed.replicas,
            }
        try:
            fields["lake"] = await self._reconcile_lake(resource)
        except Blocked as blocked:
            if not isinstance(readiness, Stalled):
                readiness = blocked.readiness
        if not await report_status(self.platform, resource.body, readiness, fields):
            return WAIT_S
        return RETRY_S if isinstance(readiness, Reconciling) else RESYNC_S


async def _observe(
    client: KafkaClient, topics: Sequence[Topic], deleted_ids: Collection[str]
) -> dict[str, ObservedTopic] | None:
    """Describes all topics in one request; None if the brokers refuse to describe one of them, so
    that each needs its own request. `deleted_ids`: brokers may return deleted topics for a moment.
    """
    try:
        found = await topic_changes.observe_topics(client, topics)
    except KafkaError:
        return None
    return {name: it for name, it in found.items() if it.topic_id not in deleted_ids}


def _readiness_of(error: KafkaError, topic: Topic, broker_count: int) -> Readiness:
    """A change that brokers reject permanently is Stalled; other failures are retried."""
    too_many = error.code is ErrorCode.invalid_replication_factor and (topic.spec.replicas or 0) > broker_count
    return rejected_readiness(error, () if too_many else TRANSIENT_ERRORS)
