"""ShareAcknowledge (79), versions 1–2 (KIP-932).

- Acknowledges records that ShareFetch has delivered to the member: accepts, releases or rejects
  them, or says that there is no record at an offset (gap). The response comes when the share
  coordinator has stored it.
- INVALID_RECORD_STATE for records that the member has not acquired, or whose lock has expired.
- Epoch −1 closes the share session, and releases what is not acknowledged.
- v2 can renew locks.
"""

from itertools import groupby
from typing import cast

from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kio.static.primitive import i32

from ottla_broker.metadata.partition_index import TopicIdPartition
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.current_leader import WRONG_BROKER_ERRORS, current_leader
from ottla_broker.requests.durations import NO_THROTTLE, to_duration
from ottla_broker.requests.share_requests import (
    acknowledge_all,
    build_endpoints,
    check_member_named,
    check_share_groups_served,
    close_session,
    read_acknowledgements,
    share_groups_of,
)
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.share_groups.share_sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.SHARE_ACKNOWLEDGE,
    versions=(1, 2),
    flexible=1,
    rights=(Right(Operation.read, ResourceType.group), Right(Operation.read, ResourceType.topic)),
)

NO_LEADER = LeaderIdAndEpoch(leader_id=i32(0), leader_epoch=i32(0))  # without an error; clients ignore it


@API.handler()
async def share_acknowledge(ctx: RequestContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    check_share_groups_served(ctx)
    check_member_named(request.group_id, request.member_id)
    group_id, member_id = request.group_id or "", request.member_id or ""
    ctx.check_authorized(Operation.read, Resource.group(group_id))
    partitions = share_groups_of(ctx).partitions
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.invalid_share_session_epoch, "ShareFetch opens a share session")
    session = partitions.sessions.proceed(group_id, member_id, request.share_session_epoch)
    acknowledgements = read_acknowledgements(request.topics)
    results = await acknowledge_all(ctx, group_id, member_id, acknowledgements, may_renew=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        await close_session(ctx, session)
    lock_ms = partitions.config_of(group_id).record_lock_duration_ms
    built = {at: build_partition(ctx, at, results[at]) for at in sorted(acknowledgements)}
    leaders = [int(one.current_leader.leader_id) for one in built.values() if one.current_leader is not NO_LEADER]
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=to_duration(lock_ms),
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(built[at] for at in of_topic))
            for topic_id, of_topic in groupby(built, key=lambda at: at[0])
        ),
        node_endpoints=build_endpoints(ctx, leaders, NodeEndpoint),
    )


def build_partition(ctx: RequestContext, at: TopicIdPartition, error: KafkaError) -> PartitionData:
    leader = NO_LEADER
    if error.code in WRONG_BROKER_ERRORS:
        broker, epoch = current_leader(ctx, *at) or (-1, -1)
        leader = LeaderIdAndEpoch(leader_id=cast(i32, broker), leader_epoch=cast(i32, epoch))
    return PartitionData(
        partition_index=cast(i32, at[1]), error_code=error.code, error_message=error.message, current_leader=leader
    )
