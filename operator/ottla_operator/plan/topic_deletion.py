"""Which topics go with resources that are gone, and which stay. Pure.

Invariants: a topic is deleted with its records only when its resource's last word was Delete, as an operator saw it, or when nobody saw the resource go and
the one that was made in its place says Delete of the same topic as well; whenever that is not sure, records stay. A resource is known by its uid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla_operator.plan.topic_verdict import TopicResource

MOST_NAMED: Final = 10


class DeletionRecord(NamedTuple):
    """`resource`: name of a Topic whose deletionPolicy is Delete; `topic` and `id`: of its topic on the brokers. `gone`: an operator saw the resource go, and
    that was its last word."""

    resource: str
    topic: str
    topic_id: str
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """Notes, by the resource's uid. `go`: their topics are to be deleted. `wait`: the resource is there, or what came in its place, and no watch has shown it
    yet. `kept`: nobody saw the resource go, so that what it said last is not known: their topics stay."""

    delete: dict[str, DeletionRecord] = field(default_factory=dict)
    pending: dict[str, DeletionRecord] = field(default_factory=dict)
    retained: dict[str, DeletionRecord] = field(default_factory=dict)


def topic_list(notes: Iterable[DeletionRecord]) -> str:
    """Their topics, for a sentence; of many the first."""
    topics = sorted({it.topic for it in notes})
    more = len(topics) - MOST_NAMED
    return ", ".join(topics[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def update_records(
    notes: Mapping[str, DeletionRecord], wishes: Iterable[TopicResource], gone: Mapping[str, bool]
) -> dict[str, DeletionRecord]:
    """Without those that say Retain by now, or said it to the last. `gone`: uids of resources that were seen to go → whether their last word was Delete."""
    says = {it.uid: it.deletes_topic for it in wishes}
    return {
        uid: note._replace(is_deleted=note.is_deleted or uid in gone)
        for uid, note in notes.items()
        if gone.get(uid, says.get(uid, True))
    }


def resources_to_look_up(notes: Mapping[str, DeletionRecord], wishes: Iterable[TopicResource]) -> set[str]:
    """Names of the resources of which it has to be asked whether they are there."""
    known = {it.uid for it in wishes}
    return {note.resource for uid, note in notes.items() if uid not in known and not note.is_deleted}


def plan_deletions(
    notes: Mapping[str, DeletionRecord], wishes: Iterable[TopicResource], there: Mapping[str, str | None]
) -> DeletionPlan:
    """`there`: names of those that are `unsure` → the uid under which there is such a resource, None when there is none. A topic that a resource of another
    name owns by now is that one's."""
    known = {it.uid: it for it in wishes}
    by_name = {it.name: it for it in known.values()}
    owners: dict[str, set[str]] = {}
    for it in known.values():
        if it.topic is not None:
            owners.setdefault(it.topic.topic_name, set()).add(it.name)
    found = DeletionPlan()
    for uid, note in notes.items():
        if uid in known or owners.get(note.topic, set()) - {note.resource}:
            continue
        successor, now = by_name.get(note.resource), there.get(note.resource)
        if note.is_deleted:
            found.delete[uid] = note
        elif now is not None and (now == uid or now not in known):
            found.pending[uid] = note
        elif successor and successor.deletes_topic and successor.topic and successor.topic.topic_name == note.topic:
            found.delete[uid] = note
        else:
            found.retained[uid] = note
    return found
