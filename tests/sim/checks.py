"""Invariants at the end of a run. Each check yields descriptions of violations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from tests.sim.history import History, TopicPartition


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic at the end of a run."""

    id: UUID
    partitions: int


Contents = Mapping[TopicPartition, Mapping[int, bytes]]  # topic partition → offset → value


def violations(history: History, contents: Contents, topics: Mapping[str, Topic]) -> list[str]:
    """`contents` and `topics` (by name) are what a reader finds after the faults."""
    return [
        *history.violations,
        *check_acknowledged_records(history, contents, topics),
        *check_records_were_sent(history, contents),
        *check_idempotent_records(history, contents),
        *check_consumed_records(history, contents),
        *check_committed_offsets(history, contents),
        *check_topics(history, topics),
    ]


def check_acknowledged_records(history: History, contents: Contents, topics: Mapping[str, Topic]) -> Iterator[str]:
    """Acknowledged records are at their offsets in their topic, and in no other topic of that
    name.
    """
    stored_values = {(name, found) for name, _, found in _records(contents)}
    for ack in history.acks:
        name = ack.topic_partition[0]
        if name not in topics or topics[name].id != ack.topic_id:
            if not history.topics[name].may_lose_records:
                yield f"topic {name} was deleted or recreated, and no client requested that"
            for value in ack.values:
                if (name, value) in stored_values:
                    yield (
                        f"of another topic: {value[:40]!r} was acknowledged in {name} before it was deleted "
                        "and is in the recreated topic"
                    )
            continue
        for offset, value in enumerate(ack.values, ack.offset):
            found = contents.get(ack.topic_partition, {}).get(offset)
            if found is None:
                yield (
                    f"lost: {value[:40]!r}, acknowledged at {ack.topic_partition} offset {offset} by "
                    f"{ack.broker} at {ack.at_s:.4f} s"
                )
            elif found != value:
                yield (
                    f"replaced: at {ack.topic_partition} offset {offset} is {found[:40]!r}; "
                    f"{value[:40]!r} was acknowledged by {ack.broker} at {ack.at_s:.4f} s"
                )


def _records(contents: Contents) -> Iterator[tuple[str, int, bytes]]:
    for (name, _), records in contents.items():
        for offset, kept in records.items():
            yield name, offset, kept


def check_records_were_sent(history: History, contents: Contents) -> Iterator[str]:
    for tp, records in contents.items():
        for offset, kept in records.items():
            if kept not in history.sent:
                yield f"not sent: {kept[:40]!r}, found at {tp} offset {offset}"


def check_idempotent_records(history: History, contents: Contents) -> Iterator[str]:
    for tp, records in contents.items():
        last: dict[str, int] = {}
        seen: dict[bytes, int] = {}
        for offset in sorted(records):
            value = records[offset]
            producer = history.sent.get(value)
            if producer not in history.idempotent_producers:
                continue
            if value in seen:
                yield f"duplicate: {value[:40]!r} is at {tp} offsets {seen[value]} and {offset}"
            seen[value] = offset
            number = int(value.split(b"/")[2].rstrip(b"."))
            if number < last.get(producer, 0):
                yield f"out of order: {value[:40]!r} at {tp} offset {offset} comes after {last[producer]} of {producer}"
            last[producer] = number


def check_consumed_records(history: History, contents: Contents) -> Iterator[str]:
    for group, topic_partitions in history.consumed.items():
        for tp, records in topic_partitions.items():
            for offset, value in records.items():
                found = contents.get(tp, {}).get(offset)
                if found is None or found != value:
                    now = "nothing" if found is None else repr(found[:40])
                    yield f"changed: {group} read {value[:40]!r} at {tp} offset {offset}, which has {now} now"


def check_committed_offsets(history: History, contents: Contents) -> Iterator[str]:
    for (group, tp), end in history.committed_offsets.items():
        seen = history.consumed.get(group, {}).get(tp, {})  # empty if it committed its first position
        missed = [offset for offset in contents.get(tp, {}) if offset < end and offset not in seen]
        if missed:
            yield f"skipped: {group} committed {tp} up to {end} and never saw {sorted(missed)[:5]}"


def check_topics(history: History, topics: Mapping[str, Topic]) -> Iterator[str]:
    for name, topic in history.topics.items():
        if topic.exists is True and name not in topics:
            yield f"creation of topic {name} was acknowledged, and it does not exist"
        elif topic.exists is False and name in topics:
            yield f"deletion of topic {name} was acknowledged, and it exists"
        elif topic.exists is True and topics[name].partitions < topic.partitions:
            yield f"topic {name} has {topics[name].partitions} partitions; {topic.partitions} were acknowledged"
