"""The questions and answers by which the metadata log is copied as messages: Fetch (1) version 18. Imported when the first comes: a broker that is
alone needs none of it."""

import datetime

from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.fetch.v18.response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from kio.schema.types import BrokerId
from kio.static.primitive import Records, i8, i32, i32Timedelta, i64

from ottla_broker.metadata.metadata_fetch import (
    METADATA_TOPIC_ID,
    NO_EPOCH_AND_OFFSET,
    MetadataFetchRequest,
    MetadataFetchResponse,
)
from ottla_broker.metadata.quorum_rules import EpochAndOffset
from ottla_broker.wire.errors import ErrorCode


def build_fetch_request(ask: MetadataFetchRequest) -> FetchRequest:
    wanted = FetchPartition(
        partition=i32(0),
        current_leader_epoch=i32(ask.leader_epoch),
        fetch_offset=i64(ask.log_end.offset),
        last_fetched_epoch=i32(ask.log_end.epoch),
        partition_max_bytes=i32(ask.max_bytes),
        replica_directory_id=ask.directory_id,
        high_watermark=i64(ask.high_watermark),
    )
    return FetchRequest(
        cluster_id=ask.cluster_id,
        replica_state=ReplicaState(replica_id=BrokerId(ask.replica_id)),
        max_wait=_milliseconds(ask.max_wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(ask.max_bytes),
        isolation_level=i8(0),
        topics=(FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


def parse_fetch_request(request: FetchRequest) -> MetadataFetchRequest:
    """Of the first partition that is named: topics may be named with none."""
    wanted = next(partition for topic in request.topics for partition in topic.partitions)
    return MetadataFetchRequest(
        replica_id=int(request.replica_state.replica_id),
        directory_id=wanted.replica_directory_id,
        leader_epoch=int(wanted.current_leader_epoch),
        log_end=EpochAndOffset(int(wanted.last_fetched_epoch), int(wanted.fetch_offset)),
        high_watermark=int(wanted.high_watermark),
        max_bytes=min(int(wanted.partition_max_bytes), int(request.max_bytes)),
        max_wait_ms=round(request.max_wait.total_seconds() * 1000),
        cluster_id=request.cluster_id,
    )


def build_fetch_response(told: MetadataFetchResponse) -> FetchResponse:
    diverging, snapshot = told.diverging_epoch or NO_EPOCH_AND_OFFSET, told.snapshot_id or NO_EPOCH_AND_OFFSET
    data = PartitionData(
        partition_index=i32(0),
        error_code=told.error,
        high_watermark=i64(told.high_watermark),
        last_stable_offset=i64(told.high_watermark),
        log_start_offset=i64(told.log_start_offset),
        diverging_epoch=EpochEndOffset(epoch=i32(diverging.epoch), end_offset=i64(diverging.offset)),
        snapshot_id=SnapshotId(end_offset=i64(snapshot.offset), epoch=i32(snapshot.epoch)),
        aborted_transactions=None,
        records=Records(told.records),
    )
    return FetchResponse(
        throttle_time=_milliseconds(0),
        error_code=ErrorCode.none,
        responses=(FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(data,)),),
    )


def parse_fetch_response(response: FetchResponse) -> MetadataFetchResponse:
    if response.error_code is not ErrorCode.none or not response.responses:
        return MetadataFetchResponse(response.error_code or ErrorCode.unknown_server_error)
    data = response.responses[0].partitions[0]
    diverging = EpochAndOffset(int(data.diverging_epoch.epoch), int(data.diverging_epoch.end_offset))
    snapshot = EpochAndOffset(int(data.snapshot_id.epoch), int(data.snapshot_id.end_offset))
    return MetadataFetchResponse(
        data.error_code,
        int(data.high_watermark),
        int(data.log_start_offset),
        bytes(data.records or b""),
        None if diverging == NO_EPOCH_AND_OFFSET else diverging,
        None if snapshot == NO_EPOCH_AND_OFFSET else snapshot,
    )


def _milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))
