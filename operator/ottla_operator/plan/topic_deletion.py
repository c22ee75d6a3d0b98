"""Decides which topics are deleted with their resources, and which are retained. Pure.

Invariants: a topic is deleted with its records only if its resource's last deletionPolicy was
Delete and a watch has shown it, or if no watch has shown the resource's deletion and the resource
that was created in its place has deletionPolicy Delete for the same topic. Whenever that is
uncertain, the topic stays. A resource is known by its uid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_operator.formatting import format_list
from ottla_operator.plan.topics import TopicResource


class DeletionRecord(NamedTuple):
    """`resource`: name of a Topic with deletionPolicy Delete. `topic`, `topic_id`: name and id of
    its topic on the brokers. `is_deleted`: a watch has shown the resource's deletion, and its
    policy was Delete to the last.
    """

    resource: str
    topic: str
    topic_id: str
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """Records by the resource's uid. `delete`: records of topics to delete. `pending`: the
    resource, or one in its place, exists, and no watch has shown it yet. `retained`: no watch has
    shown the resource's deletion, so its last policy is unknown and the topics stay."""

    delete: dict[str, DeletionRecord] = field(default_factory=dict)
    pending: dict[str, DeletionRecord] = field(default_factory=dict)
    retained: dict[str, DeletionRecord] = field(default_factory=dict)


def format_topics(records: Iterable[DeletionRecord]) -> str:
    """Names of the records' topics, for a message."""
    return format_list(sorted({it.topic for it in records}))


def update_records(
    records: Mapping[str, DeletionRecord], resources: Iterable[TopicResource], deleted: Mapping[str, bool]
) -> dict[str, DeletionRecord]:
    """Returns the records without those of resources whose current or last deletionPolicy is
    Retain. Marks the records of resources whose deletion a watch has shown. `deleted`: uids of
    resources whose deletion a watch has shown → whether their last policy was Delete.
    """
    policies = {it.uid: it.has_delete_policy for it in resources}
    return {
        uid: record._replace(is_deleted=record.is_deleted or uid in deleted)
        for uid, record in records.items()
        if deleted.get(uid, policies.get(uid, True))
    }


def resources_to_look_up(records: Mapping[str, DeletionRecord], resources: Iterable[TopicResource]) -> set[str]:
    """Names of resources whose existence must be looked up: no watch has shown them or their
    deletion.
    """
    known = {it.uid for it in resources}
    return {record.resource for uid, record in records.items() if uid not in known and not record.is_deleted}


def plan_deletions(
    records: Mapping[str, DeletionRecord], resources: Iterable[TopicResource], uids: Mapping[str, str | None]
) -> DeletionPlan:
    """`uids`: names of `resources_to_look_up` → the uid of the resource that has the name; None if
    there is none. A topic that another resource owns now is not deleted."""
    known = {it.uid: it for it in resources}
    by_name = {it.name: it for it in known.values()}
    owners: dict[str, set[str]] = {}
    for resource in known.values():
        if resource.parsed is not None:
            owners.setdefault(resource.parsed.topic_name, set()).add(resource.name)
    plan = DeletionPlan()
    for uid, record in records.items():
        if uid in known or owners.get(record.topic, set()) - {record.resource}:
            continue
        successor, existing = by_name.get(record.resource), uids.get(record.resource)
        if record.is_deleted:
            plan.delete[uid] = record
        elif existing is not None and (existing == uid or existing not in known):
            plan.pending[uid] = record
        elif (
            successor
            and successor.has_delete_policy
            and successor.parsed
            and successor.parsed.topic_name == record.topic
        ):
            plan.delete[uid] = record
        else:
            plan.retained[uid] = record
    return plan
