"""Checks after a round of faults. Each yields a description of each violation,
`check_client_errors` of at most five errors of a client.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import KafkaError
from tests.clusters import ProcessCluster
from tests.e2e.rounds.load import Load, TopicPartition

Contents = Mapping[TopicPartition, Mapping[int, bytes]]


def find_violations(load: Load, contents: Contents, committed: Mapping[TopicPartition, int]) -> list[str]:
    """`contents`: all records, as a new consumer reads them. `committed`: the group's committed
    offsets.
    """
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
    values = {partition: set(records.values()) for partition, records in contents.items()}
    for producer in load.producers:
        for ack in producer.acknowledgements:
            if ack.offset is None:
                if ack.value not in values[ack.partition]:
                    yield f"lost: {ack.value!r} was acknowledged in {ack.partition}, and is missing"
            elif (found := contents[ack.partition].get(ack.offset)) != ack.value:
                offset = f"{ack.partition} offset {ack.offset}"
                yield f"lost: {ack.value!r} was acknowledged at {offset}, which now has {found!r}"


def check_idempotent_records(load: Load, contents: Contents) -> Iterator[str]:
    once = {producer.name.encode() for producer in load.producers if producer.idempotent}
    for partition, records in contents.items():
        last: dict[bytes, int] = {}
        seen: dict[bytes, int] = {}
        for offset in sorted(records):
            value = records[offset]
            name, _, number = value.partition(b"/")
            if name not in once:
                continue
            if value in seen:
                yield f"duplicate: {value!r} is at {partition} offsets {seen[value]} and {offset}"
            elif int(number) < last.get(name, -1):
                yield f"out of order: {value!r} at {partition} offset {offset} comes after number {last[name]}"
            seen[value] = offset
            last[name] = int(number)


def check_consumed_records(load: Load, contents: Contents) -> Iterator[str]:
    for member in load.members:
        for partition, records in member.consumed.items():
            for offset, value in records.items():
                found = contents[partition].get(offset)
                if found != value:
                    yield (
                        f"changed: {member.name} read {value!r} at {partition} offset {offset}, which now has {found!r}"
                    )


def check_committed_offsets(load: Load, contents: Contents, committed: Mapping[TopicPartition, int]) -> Iterator[str]:
    seen = load.consumed()
    for partition, records in contents.items():
        end = committed.get(partition, 0)
        for member in load.members:
            if (committed_end := member.committed.get(partition, 0)) > end:
                yield f"uncommitted: {member.name} committed {partition} up to {committed_end}, now it is {end}"
        if missed := [offset for offset in records if offset < end and offset not in seen.get(partition, {})]:
            yield f"skipped: {partition} is committed up to {end}, and no member has read {missed[:5]}"


def check_replicas_are_equal(cluster: ProcessCluster, partitions: list[TopicPartition]) -> Iterator[str]:
    """Compares the bytes of all replicas. Producers must have stopped."""
    for topic, partition in partitions:
        logs = {n: log_bytes(broker.log_dir / f"{topic}-{partition}") for n, broker in cluster.brokers.items()}
        if len(set(logs.values())) > 1:
            sizes = {number: len(data) for number, data in logs.items()}
            yield f"replicas of {topic}-{partition} differ, bytes by broker: {sizes}"


def format_batches(folder: Path) -> str:
    """One line for each batch of a replica, up to a damaged one, to find the cause of a
    violation.
    """
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
