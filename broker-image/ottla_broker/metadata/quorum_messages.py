"""Protocol messages between the replicas of the metadata log: Fetch (1), FetchSnapshot (59), BeginQuorumEpoch (53).

A broker without peers never imports this module: loading the schemas takes 20 ms of processor time.
"""

import asyncio
import datetime
from collections.abc import AsyncIterator

from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest, LeaderEndpoint, TopicData
from kio.schema.begin_quorum_epoch.v1.request import PartitionData as BeginQuorumEpochPartition
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.fetch.v18.response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest, PartitionSnapshot, TopicSnapshot
from kio.schema.fetch_snapshot.v1.request import SnapshotId as RequestedSnapshotId
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i32, i32Timedelta, i64, u16

from ottla_broker.metadata.metadata_fetch import (
    METADATA_TOPIC_ID,
    NO_EPOCH_AND_OFFSET,
    MetadataFetchRequest,
    MetadataFetchResponse,
)
from ottla_broker.metadata.quorum_rules import EpochAndOffset, Voter
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode, KafkaError

SNAPSHOT_CHUNK_BYTES = 1 << 20
ANNOUNCED_LISTENER = "BROKERS"
BEGIN_QUORUM_EPOCH_TIMEOUT_S = 1.0


def build_fetch_request(request: MetadataFetchRequest) -> FetchRequest:
    partition = FetchPartition(
        partition=i32(0),
        current_leader_epoch=i32(request.leader_epoch),
        fetch_offset=i64(request.log_end.offset),
        last_fetched_epoch=i32(request.log_end.epoch),
        partition_max_bytes=i32(request.max_bytes),
        replica_directory_id=request.directory_id,
        high_watermark=i64(request.high_watermark),
    )
    return FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=ReplicaState(replica_id=BrokerId(request.replica_id)),
        max_wait=_milliseconds(request.max_wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(request.max_bytes),
        isolation_level=i8(0),
        topics=(FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def parse_fetch_request(request: FetchRequest) -> MetadataFetchRequest:
    """From the first partition in the request, which may name topics without partitions."""
    partition = next(partition for topic in request.topics for partition in topic.partitions)
    return MetadataFetchRequest(
        replica_id=int(request.replica_state.replica_id),
        directory_id=partition.replica_directory_id,
        leader_epoch=int(partition.current_leader_epoch),
        log_end=EpochAndOffset(int(partition.last_fetched_epoch), int(partition.fetch_offset)),
        high_watermark=int(partition.high_watermark),
        max_bytes=min(int(partition.partition_max_bytes), int(request.max_bytes)),
        max_wait_ms=round(request.max_wait.total_seconds() * 1000),
        cluster_id=request.cluster_id,
    )


def build_fetch_response(response: MetadataFetchResponse) -> FetchResponse:
    diverging = response.diverging_epoch or NO_EPOCH_AND_OFFSET
    snapshot = response.snapshot_id or NO_EPOCH_AND_OFFSET
    partition = PartitionData(
        partition_index=i32(0),
        error_code=response.error,
        high_watermark=i64(response.high_watermark),
        last_stable_offset=i64(response.high_watermark),
        log_start_offset=i64(response.log_start_offset),
        diverging_epoch=EpochEndOffset(epoch=i32(diverging.epoch), end_offset=i64(diverging.offset)),
        snapshot_id=SnapshotId(end_offset=i64(snapshot.offset), epoch=i32(snapshot.epoch)),
        aborted_transactions=None,
        records=Records(response.records),
    )
    return FetchResponse(
        throttle_time=_milliseconds(0),
        error_code=ErrorCode.none,
        responses=(FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
    )


def parse_fetch_response(response: FetchResponse) -> MetadataFetchResponse:
    if response.error_code is not ErrorCode.none or not response.responses:
        return MetadataFetchResponse(response.error_code or ErrorCode.unknown_server_error)
    partition = response.responses[0].partitions[0]
    diverging = EpochAndOffset(int(partition.diverging_epoch.epoch), int(partition.diverging_epoch.end_offset))
    snapshot = EpochAndOffset(int(partition.snapshot_id.epoch), int(partition.snapshot_id.end_offset))
    return MetadataFetchResponse(
        partition.error_code,
        int(partition.high_watermark),
        int(partition.log_start_offset),
        bytes(partition.records or b""),
        None if diverging == NO_EPOCH_AND_OFFSET else diverging,
        None if snapshot == NO_EPOCH_AND_OFFSET else snapshot,
    )


async def fetch_snapshot(
    channel: Channel, broker_id: int, epoch: int, snapshot_id: EpochAndOffset
) -> AsyncIterator[bytes]:
    """The snapshot's bytes in order. KafkaError with the sender's code, SNAPSHOT_NOT_FOUND among them; ConnectionError."""
    position, size = 0, 1
    while position < size:
        partition = PartitionSnapshot(
            partition=i32(0),
            current_leader_epoch=i32(epoch),
            snapshot_id=RequestedSnapshotId(end_offset=i64(snapshot_id.offset), epoch=i32(snapshot_id.epoch)),
            position=i64(position),
        )
        request = FetchSnapshotRequest(
            replica_id=BrokerId(broker_id),
            max_bytes=i32(SNAPSHOT_CHUNK_BYTES),
            topics=(TopicSnapshot(name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        )
        response = await channel.send(request)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code)
        chunk = response.topics[0].partitions[0]
        if chunk.error_code is not ErrorCode.none:
            raise KafkaError(chunk.error_code, f"snapshot at offset {snapshot_id.offset}: {chunk.error_code.name}")
        data = bytes(chunk.unaligned_records)
        size = int(chunk.size)
        if not data and position < size:
            raise KafkaError(ErrorCode.corrupt_message, f"the snapshot at offset {snapshot_id.offset} ends early")
        position += len(data)
        yield data


async def send_begin_quorum_epoch(channel: Channel, leader: Voter, epoch: int) -> None:
    """Returns when the receiver follows `epoch`. OSError, TimeoutError, KafkaError."""
    host, port = leader.endpoint or ("", 0)
    partition = BeginQuorumEpochPartition(
        partition_index=i32(0), voter_directory_id=None, leader_id=BrokerId(leader.broker), leader_epoch=i32(epoch)
    )
    request = BeginQuorumEpochRequest(
        topics=(TopicData(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        leader_endpoints=(LeaderEndpoint(name=ANNOUNCED_LISTENER, host=host, port=u16(port)),),
    )
    async with asyncio.timeout(BEGIN_QUORUM_EPOCH_TIMEOUT_S):
        await channel.send(request)


def _milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))
