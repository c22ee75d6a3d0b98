"""Records of the metadata log and of its snapshots, as clients can fetch them (KIP-595, KIP-630).

The records are JSON; their types are not known here.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v13.response import PartitionData
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

METADATA_TOPIC_ID: Final = UUID(int=1)
"""The id that Kafka reserves for __cluster_metadata."""
FETCH_MAX_BYTES: Final = 1 << 20
NO_WAIT: Final = i32Timedelta.parse(timedelta())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the log below `end_offset`; `epoch` is that of the last record below it."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """`snapshot`: the latest one, which has the state of all records before `start_offset` and may
    reach further. None if the log begins at offset 0.
    """

    quorum: QuorumDescription
    start_offset: int
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """`offset` is None for records of a snapshot."""

    offset: int | None
    epoch: int
    time_ms: int
    value: dict[str, Any]


async def describe_metadata_log(client: KafkaClient) -> MetadataLog:
    """Raises KafkaError UNSUPPORTED_VERSION if the brokers do not support DescribeQuorum."""
    description = await quorum.describe_quorum(client)
    if description is None:
        raise KafkaError(ErrorCode.unsupported_version, "the brokers do not report their metadata log")
    # The response to an offset before the log start has the log start and the id of the snapshot.
    first = await _fetch(client, description.leader, 0, allow=ErrorCode.offset_out_of_range)
    snapshot = Snapshot(int(first.snapshot_id.end_offset), int(first.snapshot_id.epoch))
    return MetadataLog(description, int(first.log_start_offset), snapshot if snapshot.end_offset >= 0 else None)


async def read_log(client: KafkaClient, log: MetadataLog, start: int) -> AsyncIterator[MetadataRecord]:
    """Records from an offset, which is not before the log start, to the high watermark of the
    description.
    """
    at = start
    while at < log.quorum.high_watermark:
        fetched = await _fetch(client, log.quorum.leader, at)
        records = list(_decode(bytes(fetched.records or b"")))
        if not records:
            return
        for record in records:
            if record.offset is not None and at <= record.offset < log.quorum.high_watermark:
                yield record
        at = max(at, *(record.offset + 1 for record in records if record.offset is not None))


async def read_snapshot(client: KafkaClient, log: MetadataLog, snapshot: Snapshot) -> list[MetadataRecord]:
    """Records of a snapshot. Raises KafkaError SNAPSHOT_NOT_FOUND if a newer one has replaced
    it.
    """
    data = b""
    while True:
        partition = PartitionSnapshot(
            partition=i32(0),
            current_leader_epoch=i32(log.quorum.epoch),
            snapshot_id=SnapshotId(end_offset=i64(snapshot.end_offset), epoch=i32(snapshot.epoch)),
            position=i64(len(data)),
        )
        request = FetchSnapshotRequest(
            replica_id=BrokerId(-1),
            max_bytes=i32(FETCH_MAX_BYTES),
            topics=(TopicSnapshot(name=TopicName(METADATA_LOG), partitions=(partition,)),),
        )
        response = await client.send(request, broker=log.quorum.leader)
        raise_for_error(response.error_code, None, "snapshot")
        chunk = response.topics[0].partitions[0]
        raise_for_error(chunk.error_code, None, "snapshot")
        data += bytes(chunk.unaligned_records)
        if len(data) >= chunk.size or not chunk.unaligned_records:
            return [MetadataRecord(None, it.epoch, it.time_ms, it.value) for it in _decode(data)]


async def _fetch(client: KafkaClient, leader: int, offset: int, *, allow: ErrorCode | None = None) -> PartitionData:
    partition = FetchPartition(partition=i32(0), fetch_offset=i64(offset), partition_max_bytes=i32(FETCH_MAX_BYTES))
    request = FetchRequest(
        max_wait=NO_WAIT,
        min_bytes=i32(0),
        max_bytes=i32(FETCH_MAX_BYTES),
        isolation_level=i8(0),
        topics=(FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    response = await client.send(request, broker=leader)
    raise_for_error(response.error_code, None, "metadata log")
    data: PartitionData = response.responses[0].partitions[0]
    raise_for_error(data.error_code, None, "metadata log", allow=() if allow is None else (allow,))
    return data


def _decode(data: bytes) -> Iterator[MetadataRecord]:
    """Records of the complete batches; an incomplete last batch is ignored."""
    complete = max((at + header.size for at, header in iter_batches(data)), default=0)
    for header, record in iter_records(data[:complete]):
        if not header.is_control and record.value is not None:
            yield MetadataRecord(record.offset, header.leader_epoch, record.timestamp_ms, json.loads(record.value))
