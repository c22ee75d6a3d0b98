"""Getting a snapshot of the metadata from another broker: FetchSnapshot (59), piece by piece over one connection."""

from collections.abc import AsyncIterator

from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest, PartitionSnapshot, SnapshotId, TopicSnapshot
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64

from ottla_broker.metadata.quorum_rules import EpochAndOffset
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode, KafkaError

CHUNK_BYTES = 1 << 20


async def fetch_snapshot(channel: Channel, me: int, epoch: int, snapshot: EpochAndOffset) -> AsyncIterator[bytes]:
    """All bytes of it, in order. KafkaError SNAPSHOT_NOT_FOUND and what else the other side says; ConnectionError."""
    position, size = 0, 1
    while position < size:
        wanted = PartitionSnapshot(
            partition=i32(0),
            current_leader_epoch=i32(epoch),
            snapshot_id=SnapshotId(end_offset=i64(snapshot.offset), epoch=i32(snapshot.epoch)),
            position=i64(position),
        )
        request = FetchSnapshotRequest(
            replica_id=BrokerId(me),
            max_bytes=i32(CHUNK_BYTES),
            topics=(TopicSnapshot(name=TopicName(METADATA_TOPIC), partitions=(wanted,)),),
        )
        answer = await channel.send(request)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code)
        found = answer.topics[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            raise KafkaError(found.error_code, f"the snapshot at offset {snapshot.offset}: {found.error_code.name}")
        data = bytes(found.unaligned_records)
        size = int(found.size)
        if not data and position < size:
            raise KafkaError(ErrorCode.corrupt_message, f"the snapshot at offset {snapshot.offset} ends early")
        position += len(data)
        yield data
