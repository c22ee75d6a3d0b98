"""What must be true after a round, whatever has happened in it. Each check yields what it found broken, in words."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import KafkaError
from tests.clusters import ProcessCluster
from tests.e2e.rounds.load import Load, Place

Contents = Mapping[Place, Mapping[int, bytes]]


def broken_promises(load: Load, contents: Contents, committed: Mapping[Place, int]) -> list[str]:
    """`contents`: what a fresh reader finds; `committed`: what the coordinator says of the group."""
    return [
        *clients_had_no_errors(load),
        *acknowledged_are_where_their_ack_said(load, contents),
        *idempotent_records_are_there_once_and_in_order(load, contents),
        *readers_saw_what_is_kept(load, contents),
        *committed_stretches_were_seen_whole(load, contents, committed),
    ]


def clients_had_no_errors(load: Load) -> Iterator[str]:
    for client in load.clients:
        for failure in client.failures[:5]:
            yield f"{client.name} failed: {failure}"


def acknowledged_are_where_their_ack_said(load: Load, contents: Contents) -> Iterator[str]:
    everywhere = {place: set(records.values()) for place, records in contents.items()}
    for producer in load.producers:
        for ack in producer.acks:
            if ack.offset is None:
                if ack.value not in everywhere[ack.place]:
                    yield f"lost: {ack.value!r} was acknowledged in {ack.place}, and is not there"
            elif (found := contents[ack.place].get(ack.offset)) != ack.value:
                yield f"lost: {ack.value!r} was acknowledged at {ack.place} offset {ack.offset}, where now is {found!r}"


def idempotent_records_are_there_once_and_in_order(load: Load, contents: Contents) -> Iterator[str]:
    once = {producer.name.encode() for producer in load.producers if producer.idempotent}
    for place, records in contents.items():
        last: dict[bytes, int] = {}
        seen: dict[bytes, int] = {}
        for offset in sorted(records):
            value = records[offset]
            name, _, number = value.partition(b"/")
            if name not in once:
                continue
            if value in seen:
                yield f"doubled: {value!r} is at {place} offsets {seen[value]} and {offset}"
            elif int(number) < last.get(name, -1):
                yield f"out of order: {value!r} at {place} offset {offset} comes after number {last[name]}"
            seen[value] = offset
            last[name] = int(number)


def readers_saw_what_is_kept(load: Load, contents: Contents) -> Iterator[str]:
    for member in load.members:
        for place, records in member.seen.items():
            for offset, value in records.items():
                found = contents[place].get(offset)
                if found != value:
                    yield f"unread: {member.name} read {value!r} at {place} offset {offset}, where now is {found!r}"


def committed_stretches_were_seen_whole(
    load: Load, contents: Contents, committed: Mapping[Place, int]
) -> Iterator[str]:
    seen = load.seen()
    for place, records in contents.items():
        end = committed.get(place, 0)
        for member in load.members:
            if member.committed.get(place, 0) > end:
                yield f"uncommitted: {member.name} committed {place} up to {member.committed[place]}, now it is {end}"
        if missed := [offset for offset in records if offset < end and offset not in seen.get(place, {})]:
            yield f"skipped: {place} is committed up to {end}, and nobody has seen {missed[:5]}"


def replicas_are_equal(cluster: ProcessCluster, places: list[Place]) -> Iterator[str]:
    """To be asked when nobody writes any more: every replica's files hold the same bytes."""
    for topic, partition in places:
        logs = {n: log_bytes(broker.log_dir / f"{topic}-{partition}") for n, broker in cluster.brokers.items()}
        if len(set(logs.values())) > 1:
            sizes = {number: len(data) for number, data in logs.items()}
            yield f"replicas of {topic}-{partition} differ, bytes by broker: {sizes}"


def batches_of(folder: Path) -> str:
    """A line for each batch of a replica: what a person wants to see when a promise was broken."""
    lines = []
    try:
        for _, header in iter_batches(log_bytes(folder)):
            offsets = f"{header.base_offset}…{header.base_offset + header.last_offset_delta}"
            producer = f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}"
            lines.append(f"{offsets} in leader epoch {header.leader_epoch}, {producer}, at {header.max_timestamp}")
    except KafkaError as reason:
        lines.append(str(reason))
    return "\n".join(lines)


def log_bytes(folder: Path) -> bytes:
    """All segments of a partition, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
