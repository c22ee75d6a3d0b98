"""FetchSnapshot (59), versions 0–1.

- A broker that lies behind the beginning of the metadata log gets what was before as a snapshot, in pieces (KIP-630).
- Any broker that has the snapshot gives it: what it holds was committed, whoever leads. Whoever may read the log may have it too.
- SNAPSHOT_NOT_FOUND when it is there no longer: the asker fetches the log again and is told of a newer one.
- A consumer (replica −1) is given it with what is secret hidden (`metadata.hiding`).
- v1 (KIP-853) names the asker's directory, which makes no difference here.
"""

from collections.abc import Callable

from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest
from kio.schema.fetch_snapshot.v1.request import PartitionSnapshot as Wanted
from kio.schema.fetch_snapshot.v1.response import (
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from kio.schema.types import BrokerId
from kio.static.primitive import Records, i32, i64

from ottla_broker.api.context import Context
from ottla_broker.api.form import Form
from ottla_broker.api.no_throttle import NO_THROTTLE
from ottla_broker.metadata.fetching import CONSUMER
from ottla_broker.metadata.hiding import hidden
from ottla_broker.metadata.quorum_rules import Position
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.snapshots import Snapshots
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.errors import ErrorCode, KafkaError

LARGEST_PIECE = 8 << 20
Read = Callable[[Snapshots, Position, int, int], bytes]


async def fetch_snapshot(ctx: Context, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    may_read = ctx.may(Operation.read, Resource.topic(METADATA_TOPIC))
    if not (may_read or ctx.may(Operation.cluster_action, Resource.cluster())):
        raise KafkaError(ErrorCode.cluster_authorization_failed)
    if request.cluster_id not in (None, ctx.broker.quorum.cluster_id):
        raise KafkaError(ErrorCode.inconsistent_cluster_id)
    topics = []
    for topic in request.topics:
        read = read_whole if int(request.replica_id) == CONSUMER else read_as_it_is
        found = [await piece(ctx, topic.name, wanted, int(request.max_bytes), read) for wanted in topic.partitions]
        topics.append(TopicSnapshot(name=topic.name, partitions=tuple(found)))
    return FetchSnapshotResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=tuple(topics))


def read_as_it_is(snapshots: Snapshots, snapshot: Position, at: int, count: int) -> bytes:
    return snapshots.read(snapshot, at, count)


def read_whole(snapshots: Snapshots, snapshot: Position, at: int, count: int) -> bytes:
    """The same for a consumer: a secret may lie across two pieces, and its batch's checksum in another."""
    return hidden(snapshots.read(snapshot, 0, snapshots.size(snapshot)))[at : at + count]


async def piece(ctx: Context, topic: str, wanted: Wanted, most: int, read: Read) -> PartitionSnapshot:
    snapshots = ctx.broker.quorum.log.snapshots
    snapshot = Position(int(wanted.snapshot_id.epoch), int(wanted.snapshot_id.end_offset))
    code, size, data = ErrorCode.none, 0, b""
    if topic != METADATA_TOPIC or wanted.partition != 0:
        code = ErrorCode.unknown_topic_or_partition
    elif snapshot not in snapshots.kept:
        code = ErrorCode.snapshot_not_found
    else:
        try:
            size = snapshots.size(snapshot)
            if 0 <= wanted.position <= size:
                count = max(1, min(most, LARGEST_PIECE))
                data = await ctx.broker.runtime.offload(read, snapshots, snapshot, int(wanted.position), count)
            else:
                code = ErrorCode.position_out_of_range
        except OSError:
            code = ErrorCode.kafka_storage_error
    return PartitionSnapshot(
        index=wanted.partition,
        error_code=code,
        snapshot_id=SnapshotId(end_offset=i64(snapshot.end), epoch=i32(snapshot.epoch)),
        current_leader=LeaderIdAndEpoch(
            leader_id=BrokerId(ctx.broker.quorum.leader), leader_epoch=i32(ctx.broker.quorum.epoch)
        ),
        size=i64(size),
        position=wanted.position,
        unaligned_records=Records(data),
    )


FORMS = (Form(0, 1, FetchSnapshotRequest, FetchSnapshotResponse, fetch_snapshot),)
