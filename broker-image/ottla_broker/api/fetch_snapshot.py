"""FetchSnapshot (59), versions 0–1.

- A broker that is behind the start of the metadata log gets the metadata as a snapshot, in pieces
  (KIP-630).
- Any broker that has the snapshot serves it, since its content is committed. A client that may read
  the log may read it.
- SNAPSHOT_NOT_FOUND when it was deleted: the broker fetches the log again and learns of a newer
  one.
- A consumer (replica −1) gets it with secrets redacted (`metadata.redaction`).
- v1 (KIP-853) adds the replica's directory id, which is ignored.
"""

from collections.abc import Callable

from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest
from kio.schema.fetch_snapshot.v1.request import PartitionSnapshot as RequestedSnapshot
from kio.schema.fetch_snapshot.v1.response import (
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from kio.schema.types import BrokerId
from kio.static.primitive import Records, i32, i64

from ottla_broker.metadata.metadata_fetch import CONSUMER_REPLICA_ID
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.redaction import redact_secrets
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.FETCH_SNAPSHOT,
    versions=(0, 1),
    flexible=0,
    is_served_while_starting=True,
    rights=(
        Right(Operation.read, ResourceType.topic, refused=CHECK_NEXT),
        Right(Operation.cluster_action, ResourceType.cluster),
    ),
)

MAX_PIECE_BYTES = 8 << 20
Read = Callable[[SnapshotStore, EpochAndOffset, int, int], bytes]


@API.handler()
async def fetch_snapshot(ctx: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    may_read = ctx.may(Operation.read, Resource.topic(METADATA_TOPIC))
    if not (may_read or ctx.is_authorized(Operation.cluster_action, CLUSTER)):
        raise KafkaError(ErrorCode.cluster_authorization_failed)
    if request.cluster_id not in (None, ctx.broker.quorum.cluster_id):
        raise KafkaError(ErrorCode.inconsistent_cluster_id)
    topics = []
    for topic in request.topics:
        read = read_redacted_piece if int(request.replica_id) == CONSUMER_REPLICA_ID else read_piece
        pieces = [
            await fetch_piece(ctx, topic.name, requested, int(request.max_bytes), read)
            for requested in topic.partitions
        ]
        topics.append(TopicSnapshot(name=topic.name, partitions=tuple(pieces)))
    return FetchSnapshotResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=tuple(topics))


def read_piece(snapshots: SnapshotStore, snapshot: EpochAndOffset, at: int, size_bytes: int) -> bytes:
    return snapshots.read_bytes(snapshot, at, size_bytes)


def read_redacted_piece(snapshots: SnapshotStore, snapshot: EpochAndOffset, at: int, size_bytes: int) -> bytes:
    """Like `read_piece`, of the snapshot with secrets redacted. The whole snapshot is redacted each
    time: a secret may lie across two pieces, and its batch's checksum in another.
    """
    return redact_secrets(snapshots.read_bytes(snapshot, 0, snapshots.file_size(snapshot)))[at : at + size_bytes]


async def fetch_piece(
    ctx: RequestContext, topic: str, requested: RequestedSnapshot, max_bytes: int, read: Read
) -> PartitionSnapshot:
    """The piece of a snapshot from the requested position on, or the error in its place."""
    snapshots = ctx.broker.quorum.metadata_log.snapshots
    snapshot = EpochAndOffset(int(requested.snapshot_id.epoch), int(requested.snapshot_id.end_offset))
    code, size, data = ErrorCode.none, 0, b""
    if topic != METADATA_TOPIC or requested.partition != 0:
        code = ErrorCode.unknown_topic_or_partition
    elif snapshot not in snapshots.snapshot_ids:
        code = ErrorCode.snapshot_not_found
    else:
        try:
            size = snapshots.file_size(snapshot)
            if 0 <= requested.position <= size:
                size_bytes = max(1, min(max_bytes, MAX_PIECE_BYTES))
                data = await ctx.broker.runtime.run_in_thread(
                    read, snapshots, snapshot, int(requested.position), size_bytes
                )
            else:
                code = ErrorCode.position_out_of_range
        except OSError:
            code = ErrorCode.kafka_storage_error
    return PartitionSnapshot(
        index=requested.partition,
        error_code=code,
        snapshot_id=SnapshotId(end_offset=i64(snapshot.offset), epoch=i32(snapshot.epoch)),
        current_leader=LeaderIdAndEpoch(
            leader_id=BrokerId(ctx.broker.quorum.leader_id), leader_epoch=i32(ctx.broker.quorum.epoch)
        ),
        size=i64(size),
        position=requested.position,
        unaligned_records=Records(data),
    )
