"""Which topics go with resources that are gone, and which stay. Pure.

Invariants: a topic is deleted with its records only when its resource's last word was Delete, as an operator saw it, or when nobody saw the resource go and
the one that was made in its place says Delete of the same topic as well; whenever that is not sure, records stay. A resource is known by its uid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla_operator.plan.topic_verdict import Wish

MOST_NAMED: Final = 10


class Note(NamedTuple):
    """`resource`: name of a Topic whose deletionPolicy is Delete; `topic` and `id`: of its topic on the brokers. `gone`: an operator saw the resource go, and
    that was its last word."""

    resource: str
    topic: str
    id: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Leaving:
    """Notes, by the resource's uid. `go`: their topics are to be deleted. `wait`: the resource is there, or what came in its place, and no watch has shown it
    yet. `kept`: nobody saw the resource go, so that what it said last is not known: their topics stay."""

    go: dict[str, Note] = field(default_factory=dict)
    wait: dict[str, Note] = field(default_factory=dict)
    kept: dict[str, Note] = field(default_factory=dict)


def named(notes: Iterable[Note]) -> str:
    """Their topics, for a sentence; of many the first."""
    topics = sorted({it.topic for it in notes})
    more = len(topics) - MOST_NAMED
    return ", ".join(topics[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def heard(notes: Mapping[str, Note], wishes: Iterable[Wish], gone: Mapping[str, bool]) -> dict[str, Note]:
    """Without those that say Retain by now, or said it to the last. `gone`: uids of resources that were seen to go → whether their last word was Delete."""
    says = {it.uid: it.goes for it in wishes}
    return {
        uid: note._replace(gone=note.gone or uid in gone)
        for uid, note in notes.items()
        if gone.get(uid, says.get(uid, True))
    }


def unsure(notes: Mapping[str, Note], wishes: Iterable[Wish]) -> set[str]:
    """Names of the resources of which it has to be asked whether they are there."""
    known = {it.uid for it in wishes}
    return {note.resource for uid, note in notes.items() if uid not in known and not note.gone}


def leaving(notes: Mapping[str, Note], wishes: Iterable[Wish], there: Mapping[str, str | None]) -> Leaving:
    """`there`: names of those that are `unsure` → the uid under which there is such a resource, None when there is none. A topic that a resource of another
    name owns by now is that one's."""
    known = {it.uid: it for it in wishes}
    by_name = {it.name: it for it in known.values()}
    owners: dict[str, set[str]] = {}
    for it in known.values():
        if it.topic is not None:
            owners.setdefault(it.topic.topic_name, set()).add(it.name)
    found = Leaving()
    for uid, note in notes.items():
        if uid in known or owners.get(note.topic, set()) - {note.resource}:
            continue
        successor, now = by_name.get(note.resource), there.get(note.resource)
        if note.gone:
            found.go[uid] = note
        elif now is not None and (now == uid or now not in known):
            found.wait[uid] = note
        elif successor and successor.goes and successor.topic and successor.topic.topic_name == note.topic:
            found.go[uid] = note
        else:
            found.kept[uid] = note
    return found
