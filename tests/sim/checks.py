"""What must be true after a run, whatever has happened in it. Each check yields the promises that it found broken, in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from tests.sim.history import History, Place


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is found at the end."""

    id: UUID
    partitions: int


Contents = Mapping[Place, Mapping[int, bytes]]  # place → offset → what the record holds


def broken_promises(history: History, contents: Contents, topics: Mapping[str, Topic]) -> list[str]:
    """`contents`: what a reader finds after the faults; `topics`: by name what is there then."""
    return [
        *history.problems,
        *acknowledged_are_where_their_ack_said(history, contents, topics),
        *nothing_comes_from_nowhere(history, contents),
        *idempotent_records_are_there_once_and_in_order(history, contents),
        *readers_saw_what_is_kept(history, contents),
        *committed_stretches_were_seen_whole(history, contents),
        *topics_are_as_acknowledged(history, topics),
    ]


def acknowledged_are_where_their_ack_said(
    history: History, contents: Contents, topics: Mapping[str, Topic]
) -> Iterator[str]:
    """In the topic that it was acknowledged in, and in no other of that name."""
    elsewhere = {(name, found) for name, _, found in _records(contents)}
    for ack in history.acks:
        name = ack.place[0]
        if name not in topics or topics[name].id != ack.topic_id:
            if not history.topics[name].mortal:
                yield f"topic {name} is another one, or gone, and nobody asked for that"
            for value in ack.values:
                if (name, value) in elsewhere:
                    yield f"of another topic: {value[:40]!r} was acknowledged in {name} before it was deleted and is in its successor"
            continue
        for offset, value in enumerate(ack.values, ack.offset):
            found = contents.get(ack.place, {}).get(offset)
            if found is None:
                yield f"lost: {value[:40]!r}, acknowledged at {ack.place} offset {offset} by {ack.broker} at {ack.at_s:.4f} s"
            elif found != value:
                yield (
                    f"replaced: at {ack.place} offset {offset} is {found[:40]!r}; acknowledged was {value[:40]!r} "
                    f"by {ack.broker} at {ack.at_s:.4f} s"
                )


def _records(contents: Contents) -> Iterator[tuple[str, int, bytes]]:
    for (name, _), records in contents.items():
        for offset, kept in records.items():
            yield name, offset, kept


def nothing_comes_from_nowhere(history: History, contents: Contents) -> Iterator[str]:
    for place, records in contents.items():
        for offset, kept in records.items():
            if kept not in history.sent:
                yield f"nobody sent {kept[:40]!r}, which is at {place} offset {offset}"


def idempotent_records_are_there_once_and_in_order(history: History, contents: Contents) -> Iterator[str]:
    for place, records in contents.items():
        last: dict[str, int] = {}
        seen: dict[bytes, int] = {}
        for offset in sorted(records):
            value = records[offset]
            producer = history.sent.get(value)
            if producer not in history.once:
                continue
            if value in seen:
                yield f"doubled: {value[:40]!r} is at {place} offsets {seen[value]} and {offset}"
            seen[value] = offset
            number = int(value.split(b"/")[2].rstrip(b"."))
            if number < last.get(producer, 0):
                yield f"out of order: {value[:40]!r} at {place} offset {offset} comes after {producer}'s {last[producer]}"
            last[producer] = number


def readers_saw_what_is_kept(history: History, contents: Contents) -> Iterator[str]:
    for group, places in history.seen.items():
        for place, records in places.items():
            for offset, value in records.items():
                found = contents.get(place, {}).get(offset)
                if found is None or found != value:
                    now = "nothing" if found is None else repr(found[:40])
                    yield f"unread: {group} read {value[:40]!r} at {place} offset {offset}, where now is {now}"


def committed_stretches_were_seen_whole(history: History, contents: Contents) -> Iterator[str]:
    for (group, place), end in history.committed.items():
        seen = history.seen.get(group, {}).get(place, {})  # nothing, where it committed what it began with
        missed = [offset for offset in contents.get(place, {}) if offset < end and offset not in seen]
        if missed:
            yield f"skipped: {group} committed {place} up to {end} and never saw {sorted(missed)[:5]}"


def topics_are_as_acknowledged(history: History, topics: Mapping[str, Topic]) -> Iterator[str]:
    for name, fate in history.topics.items():
        if fate.there is True and name not in topics:
            yield f"topic {name} was acknowledged and is not there"
        elif fate.there is False and name in topics:
            yield f"topic {name} is there; its deletion was acknowledged"
        elif fate.there is True and topics[name].partitions < fate.partitions:
            yield f"topic {name} has {topics[name].partitions} partitions; {fate.partitions} were acknowledged"
