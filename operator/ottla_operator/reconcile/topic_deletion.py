"""Deletes a topic when its Topic is deleted with deletionPolicy Delete, without a finalizer.

With a finalizer, a Topic, and so its namespace, could not be deleted while no operator runs.
Instead, a topic whose deletionPolicy is Delete is recorded while its resource exists, and again
once a watch has shown the resource's deletion together with its last deletionPolicy; then the topic
is deleted, and its record after it. A resource is known by its uid: one that is created again under
the same name has another uid.

Invariant: a deletion record that is lost or cannot be read never causes the deletion of a topic.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.topic_deletion import (
    DeletionRecord,
    format_topics,
    plan_deletions,
    resources_to_look_up,
    update_records,
)
from ottla_operator.plan.topics import TopicResource
from ottla_operator.reconcile.concurrency import for_each
from ottla_operator.reconcile.platform import Platform, PlatformError
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json


@dataclass(slots=True)
class TopicDeletion:
    """The deletion records of one Cluster during one reconcile. `records`: the desired records by
    the resource's uid; `_written`: those that the platform has stored."""

    platform: Platform
    cache: WatchCache
    key: Key
    cluster: Json
    records: dict[str, DeletionRecord]
    _written: dict[str, DeletionRecord] = field(init=False)

    def __post_init__(self) -> None:
        self._written = dict(self.records)

    @classmethod
    async def load(cls, platform: Platform, cache: WatchCache, key: Key, cluster: Json) -> "TopicDeletion":
        return cls(platform, cache, key, cluster, await platform.read_deletion_records(key))

    async def update(self, resources: Sequence[TopicResource]) -> None:
        """Marks the records of resources whose deletion a watch has shown, and drops those of
        topics that must be kept now, even if no broker is reachable: a user may change
        deletionPolicy to Retain and then delete the resource.
        """
        deleted = dict(self.cache.deleted_topics.get(self.key, {}))
        self.records = update_records(self.records, resources, deleted)
        if not await self._write():
            remaining = self.cache.deleted_topics.get(self.key, {})
            for uid in deleted:
                remaining.pop(uid, None)

    async def delete_topics(self, client: KafkaClient, resources: Sequence[TopicResource]) -> set[str]:
        """Deletes the topics whose resources are deleted. Returns the ids of those that no longer
        exist; records of topics that brokers refuse to delete are kept.
        """
        namespace = self.key.namespace
        names = sorted(resources_to_look_up(self.records, resources))
        uids = {name: await self.platform.find_topic_uid(namespace, name) for name in names}
        plan = plan_deletions(self.records, resources, uids)
        if plan.retained:
            message = (
                "topics stay with their records, because no operator watched the deletion of their Topics: "
                f"{format_topics(plan.retained.values())}"
            )
            await self._record_event("TopicRetained", message)
        self.records = dict(plan.pending)
        gone_ids, deleted = set[str](), list[DeletionRecord]()

        async def delete(item: tuple[str, DeletionRecord]) -> None:
            uid, record = item
            try:
                if record.topic_id and await topics.delete_topic_by_id(client, UUID(record.topic_id)):
                    deleted.append(record)
                gone_ids.add(record.topic_id)
            except KafkaError as error:
                self.records[uid] = record
                message = f"cannot delete topic {record.topic} of the deleted Topic {record.resource}: {error}"
                await self._record_event("TopicDeletionFailed", message)

        await for_each(plan.delete.items(), delete)
        if deleted:
            message = f"deleted with their Topics (deletionPolicy: Delete): {format_topics(deleted)}"
            await self.platform.record_event(self.cluster, "TopicDeleted", message)
        return gone_ids

    @property
    def has_undeleted_topics(self) -> bool:
        """True if a topic still has to be deleted, because its resource is deleted."""
        return any(it.is_deleted for it in self.records.values())

    def is_recorded(self, resource: TopicResource, record: DeletionRecord | None) -> bool:
        return record is None or self._written.get(resource.uid) == record

    async def record(self, results: Iterable[tuple[TopicResource, DeletionRecord | None]]) -> str:
        """Stores the deletion records of these resources. Returns why that failed; empty if it
        succeeded. Raises PlatformError while the platform is unavailable.
        """
        previous = dict(self._written)
        for resource, record in results:
            if record is not None:
                self.records[resource.uid] = record
            elif resource.has_delete_policy and resource.uid in previous:
                self.records[resource.uid] = previous[resource.uid]  # brokers did not describe it this time
        return await self._write()

    async def _write(self) -> str:
        """Stores the deletion records if they have changed. Returns why that failed; empty if it
        did not. Raises PlatformError while the platform is unavailable.
        """
        if self.records == self._written:
            return ""
        try:
            await self.platform.write_deletion_records(self.cluster, self.records)
        except PlatformError as error:
            if error.is_unavailable:
                raise
            message = f"cannot record which topics are to be deleted with their Topics: {error}"
            await self._record_event("DeletionPolicyNotRecorded", message)
            return message
        self._written = dict(self.records)
        return ""

    async def _record_event(self, reason: str, message: str) -> None:
        await self.platform.record_event(self.cluster, reason, message, is_warning=True, lasts=True)
