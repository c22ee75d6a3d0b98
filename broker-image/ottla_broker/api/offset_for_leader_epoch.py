"""OffsetForLeaderEpoch (23), versions 2–4.

- Returns the end offset of a leader epoch, so that followers and clients find where their log
  diverged from the leader's (KIP-101, KIP-320; rule 2).
- A current epoch newer than this broker's is UNKNOWN_LEADER_EPOCH, an older one
  FENCED_LEADER_EPOCH: this broker's or the client's metadata are stale.
- For an epoch without records: the end of the largest known epoch below it. For one older than all
  known ones: the start of the oldest of these. For one newer than all: (−1, −1).
- v3 adds the replica id (only brokers send one ≥ 0); v4 is flexible.
"""

from typing import cast

from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest, OffsetForLeaderPartition
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    flexible=4,
    is_served_while_starting=True,
    rights=(
        Right(Operation.cluster_action, ResourceType.cluster, refused=CHECK_NEXT),
        Right(Operation.describe, ResourceType.topic),
    ),
)


@API.handler()
async def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(find_epoch_end_offset(ctx, topic.topic, requested) for requested in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def find_epoch_end_offset(ctx: RequestContext, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        if not ctx.may(Operation.cluster_action, CLUSTER):
            ctx.check_authorized(Operation.describe, Resource.topic(topic))
        partition = ctx.broker.partitions.leader(topic, requested.partition, epoch=requested.current_leader_epoch)
    except KafkaError as reason:
        return EpochEndOffset(error_code=reason.code, partition=requested.partition)
    epoch, end = partition.log.epochs.end_offset_for(requested.leader_epoch, partition.log.end)
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=requested.partition,
        leader_epoch=cast(i32, epoch),
        end_offset=cast(i64, end),
    )
