"""The metadata log as a client may read it: what it says, and of what there is a snapshot (KIP-595, KIP-630).

Records are JSON in it, so nothing here knows what kinds of them there are.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v13.response import PartitionData as Fetched
from kio.schema.fetch_snapshot.v0.request import (
    FetchSnapshotRequest,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import iter_records
from ottla_operator.kafka import quorum
from ottla_operator.kafka.client import KafkaClient, raise_for_error
from ottla_operator.kafka.quorum import METADATA_LOG, QuorumDescription

METADATA_LOG_ID: Final = UUID(int=1)  # what Kafka reserves for it
PIECE: Final = 1 << 20
NO_WAIT: Final = i32Timedelta.parse(timedelta())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the log said below `end`; `epoch` is that of the last record below it."""

    end: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Log:
    """`start`: the first offset that it still holds. `snapshot`: of what was before that."""

    quorum: QuorumDescription
    start: int
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A record: `what` it says, as JSON. `offset` None: it is one of a snapshot."""

    offset: int | None
    epoch: int
    time_ms: int
    what: dict[str, Any]


async def describe(link: KafkaClient) -> Log:
    """KafkaError UNSUPPORTED_VERSION when the brokers do not tell."""
    found = await quorum.describe_quorum(link)
    if found is None:
        raise KafkaError(ErrorCode.unsupported_version, "these brokers do not tell of their metadata log")
    # Whoever asks for what is no longer there is told where the log begins, and of the snapshot of what was before.
    beginning = await _fetch(link, found.leader, 0, allow=ErrorCode.offset_out_of_range)
    snapshot = Snapshot(int(beginning.snapshot_id.end_offset), int(beginning.snapshot_id.epoch))
    return Log(found, int(beginning.log_start_offset), snapshot if snapshot.end >= 0 else None)


async def entries(link: KafkaClient, log: Log, first: int) -> AsyncIterator[Entry]:
    """The log from offset `first` on, which must not be before its start, as far as it was committed when it was described."""
    at = first
    while at < log.quorum.high_watermark:
        told = await _fetch(link, log.quorum.leader, at)
        found = list(_entries(bytes(told.records or b"")))
        if not found:
            return
        for entry in found:
            if entry.offset is not None and at <= entry.offset < log.quorum.high_watermark:
                yield entry
        at = max(at, *(entry.offset + 1 for entry in found if entry.offset is not None))


async def snapshot_entries(link: KafkaClient, log: Log, snapshot: Snapshot) -> list[Entry]:
    """What a snapshot says. KafkaError SNAPSHOT_NOT_FOUND when there is a newer one by now."""
    data = b""
    while True:
        wanted = PartitionSnapshot(
            partition=i32(0),
            current_leader_epoch=i32(log.quorum.epoch),
            snapshot_id=SnapshotId(end_offset=i64(snapshot.end), epoch=i32(snapshot.epoch)),
            position=i64(len(data)),
        )
        request = FetchSnapshotRequest(
            replica_id=BrokerId(-1),
            max_bytes=i32(PIECE),
            topics=(TopicSnapshot(name=TopicName(METADATA_LOG), partitions=(wanted,)),),
        )
        answer = await link.ask(request, broker=log.quorum.leader)
        raise_for_error(answer.error_code, None, "snapshot")
        piece = answer.topics[0].partitions[0]
        raise_for_error(piece.error_code, None, "snapshot")
        data += bytes(piece.unaligned_records)
        if len(data) >= piece.size or not piece.unaligned_records:
            return [Entry(None, it.epoch, it.time_ms, it.what) for it in _entries(data)]


async def _fetch(link: KafkaClient, leader: int, offset: int, *, allow: ErrorCode | None = None) -> Fetched:
    wanted = FetchPartition(partition=i32(0), fetch_offset=i64(offset), partition_max_bytes=i32(PIECE))
    request = FetchRequest(
        max_wait=NO_WAIT,
        min_bytes=i32(0),
        max_bytes=i32(PIECE),
        isolation_level=i8(0),
        topics=(FetchTopic(topic_id=METADATA_LOG_ID, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )
    answer = await link.ask(request, broker=leader)
    raise_for_error(answer.error_code, None, "metadata log")
    told: Fetched = answer.responses[0].partitions[0]
    raise_for_error(told.error_code, None, "metadata log", allow=() if allow is None else (allow,))
    return told


def _entries(data: bytes) -> Iterator[Entry]:
    """Of whole batches; what is cut off at the end is left out."""
    whole = max((at + header.size for at, header in iter_batches(data)), default=0)
    for header, record in iter_records(data[:whole]):
        if not header.is_control and record.value is not None:
            yield Entry(record.offset, header.leader_epoch, record.timestamp_ms, json.loads(record.value))
