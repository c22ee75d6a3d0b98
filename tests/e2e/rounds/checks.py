"""What must be true after a round, whatever has happened in it. Each check yields what it found broken, in words."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import KafkaError
from tests.clusters import ProcessCluster
from tests.e2e.rounds.load import Load, TopicPartition

Contents = Mapping[TopicPartition, Mapping[int, bytes]]


def find_violations(load: Load, contents: Contents, committed: Mapping[TopicPartition, int]) -> list[str]:
    """`contents`: what a fresh reader finds; `committed`: what the coordinator says of the group."""
    return [
        *check_client_errors(load),
        *check_acknowledged_records(load, contents),
        *check_idempotent_records(load, contents),
        *check_consumed_records(load, contents),
        *check_committed_offsets(load, contents, committed),
    ]


def check_client_errors(load: Load) -> Iterator[str]:
    for client in load.clients:
        for failure in client.failures[:5]:
            yield f"{client.name} failed: {failure}"


def check_acknowledged_records(load: Load, contents: Contents) -> Iterator[str]:
    everywhere = {place: set(records.values()) for place, records in contents.items()}
    for producer in load.producers:
        for ack in producer.acknowledgements:
            if ack.offset is None:
                if ack.value not in everywhere[ack.partition]:
                    yield f"lost: {ack.value!r} was acknowledged in {ack.partition}, and is not there"
            elif (found := contents[ack.partition].get(ack.offset)) != ack.value:
                yield f"lost: {ack.value!r} was acknowledged at {ack.partition} offset {ack.offset}, where now is {found!r}"


def check_idempotent_records(load: Load, contents: Contents) -> Iterator[str]:
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


def check_consumed_records(load: Load, contents: Contents) -> Iterator[str]:
    for member in load.members:
        for place, records in member.consumed.items():
            for offset, value in records.items():
                found = contents[place].get(offset)
                if found != value:
                    yield f"unread: {member.name} read {value!r} at {place} offset {offset}, where now is {found!r}"


def check_committed_offsets(load: Load, contents: Contents, committed: Mapping[TopicPartition, int]) -> Iterator[str]:
    seen = load.consumed()
    for place, records in contents.items():
        end = committed.get(place, 0)
        for member in load.members:
            if member.committed.get(place, 0) > end:
                yield f"uncommitted: {member.name} committed {place} up to {member.committed[place]}, now it is {end}"
        if missed := [offset for offset in records if offset < end and offset not in seen.get(place, {})]:
            yield f"skipped: {place} is committed up to {end}, and nobody has seen {missed[:5]}"


def check_replicas_are_equal(cluster: ProcessCluster, places: list[TopicPartition]) -> Iterator[str]:
    """To be asked when nobody writes any more: every replica's files hold the same bytes."""
    for topic, partition in places:
        logs = {n: log_bytes(broker.log_dir / f"{topic}-{partition}") for n, broker in cluster.brokers.items()}
        if len(set(logs.values())) > 1:
            sizes = {number: len(data) for number, data in logs.items()}
            yield f"replicas of {topic}-{partition} differ, bytes by broker: {sizes}"


def format_batches(folder: Path) -> str:
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
