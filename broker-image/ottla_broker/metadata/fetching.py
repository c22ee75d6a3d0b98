"""The questions and answers by which the metadata log is copied: Fetch (1) version 18, in the words of the quorum."""

import datetime
from dataclasses import dataclass
from uuid import UUID

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

from ottla_broker.log.epochs import LeaderEpochs
from ottla_broker.metadata.quorum_rules import Position
from ottla_broker.wire.errors import ErrorCode

VERSION = 18
METADATA_TOPIC_ID = UUID(int=1)  # the id that Kafka reserves for its own metadata topic
CONSUMER = -1
UNKNOWN = -1
NOTHING = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a broker (or a consumer, `replica` −1) wants of the metadata log. `position`: how far its own copy goes on its device.

    `epoch`: of the leader that it follows; `high_watermark`: what it knows to be committed, so that it can be told of more.
    """

    replica: int
    directory: UUID | None
    epoch: int
    position: Position
    high_watermark: int = UNKNOWN
    max_bytes: int = 1 << 20
    max_wait_ms: int = 0
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """`high_watermark` −1: the leader has not settled yet, and says nothing of the log. `diverging`: where the asker's log may still agree with
    the leader's. `snapshot`: what to fetch instead of records that are gone."""

    error: ErrorCode = ErrorCode.none
    high_watermark: int = UNKNOWN
    log_start: int = UNKNOWN
    records: bytes = b""
    diverging: Position | None = None
    snapshot: Position | None = None


def request_of(ask: Ask) -> FetchRequest:
    wanted = FetchPartition(
        partition=i32(0),
        current_leader_epoch=i32(ask.epoch),
        fetch_offset=i64(ask.position.end),
        last_fetched_epoch=i32(ask.position.epoch),
        partition_max_bytes=i32(ask.max_bytes),
        replica_directory_id=ask.directory,
        high_watermark=i64(ask.high_watermark),
    )
    return FetchRequest(
        cluster_id=ask.cluster_id,
        replica_state=ReplicaState(replica_id=BrokerId(ask.replica)),
        max_wait=_milliseconds(ask.max_wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(ask.max_bytes),
        isolation_level=i8(0),
        topics=(FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


def ask_of(request: FetchRequest) -> Ask:
    wanted = request.topics[0].partitions[0]
    return Ask(
        replica=int(request.replica_state.replica_id),
        directory=wanted.replica_directory_id,
        epoch=int(wanted.current_leader_epoch),
        position=Position(int(wanted.last_fetched_epoch), int(wanted.fetch_offset)),
        high_watermark=int(wanted.high_watermark),
        max_bytes=min(int(wanted.partition_max_bytes), int(request.max_bytes)),
        max_wait_ms=round(request.max_wait.total_seconds() * 1000),
        cluster_id=request.cluster_id,
    )


def response_of(told: Told) -> FetchResponse:
    diverging, snapshot = told.diverging or NOTHING, told.snapshot or NOTHING
    data = PartitionData(
        partition_index=i32(0),
        error_code=told.error,
        high_watermark=i64(told.high_watermark),
        last_stable_offset=i64(told.high_watermark),
        log_start_offset=i64(told.log_start),
        diverging_epoch=EpochEndOffset(epoch=i32(diverging.epoch), end_offset=i64(diverging.end)),
        snapshot_id=SnapshotId(end_offset=i64(snapshot.end), epoch=i32(snapshot.epoch)),
        aborted_transactions=None,
        records=Records(told.records),
    )
    return FetchResponse(
        throttle_time=_milliseconds(0),
        error_code=ErrorCode.none,
        responses=(FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(data,)),),
    )


def told_of(response: FetchResponse) -> Told:
    if response.error_code is not ErrorCode.none or not response.responses:
        return Told(response.error_code or ErrorCode.unknown_server_error)
    data = response.responses[0].partitions[0]
    diverging = Position(int(data.diverging_epoch.epoch), int(data.diverging_epoch.end_offset))
    snapshot = Position(int(data.snapshot_id.epoch), int(data.snapshot_id.end_offset))
    return Told(
        data.error_code,
        int(data.high_watermark),
        int(data.log_start_offset),
        bytes(data.records or b""),
        None if diverging == NOTHING else diverging,
        None if snapshot == NOTHING else snapshot,
    )


def agreement(epochs: LeaderEpochs, log_end: int, asked: Position) -> Position | None:
    """None when a log that goes as far as `asked` is a beginning of this one; else the largest epoch of this log that is not above the asker's,
    and its end, as KIP-595 has it."""
    if asked.end == 0:
        return None
    epoch, end = epochs.end_of(asked.epoch, log_end)
    if epoch == asked.epoch and asked.end <= end:
        return None
    return Position(epoch, max(end, 0))


def where_to_cut(epochs: LeaderEpochs, log_end: int, diverging: Position) -> int:
    """The offset from which on a follower's log is not its leader's, as far as can be told from where the leader says that they part."""
    epoch, end = epochs.end_of(diverging.epoch, log_end)
    return min(diverging.end, log_end if epoch < 0 else end)


def _milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))
