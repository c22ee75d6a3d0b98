"""ShareFetch (78), versions 1–2 (KIP-932).

- Delivers records of the partitions in the member's share session, and locks them for the member.
  Epoch 0 opens the session. Epoch −1, or the end of the connection, closes it. Whole batches are
  returned, with the offsets in them that the member has acquired, and how often each was delivered.
- Acknowledges records that were delivered before; each partition has an error code of its own for
  that.
- The response has the partitions that the request adds to the session, and those with records or
  errors.
- Waits up to `max_wait` until a partition has `min_bytes` of new records, a released record or an
  error.
- The bytes of its records count for the client's `consumer_byte_rate`, which also bounds them.
- NOT_LEADER_OR_FOLLOWER comes with the current leader.
- v1 delivers up to the end of the batch in which `max_records` is reached. v2 can deliver at most
  `max_records` (acquire mode 1), and renew locks.
"""

import asyncio
from collections.abc import Collection
from functools import partial
from itertools import groupby
from typing import cast

from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.share_fetch.v2.response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from kio.static.primitive import Records, i16, i32, i64

from ottla_broker.config import FETCH_MAX_BYTES
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
    find_forbidden,
    read_acknowledgements,
    requested_partitions,
    share_groups_of,
)
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.share_groups.share_partition_leader import UNLIMITED, DeliveredRecords, ShareFetchLimits
from ottla_broker.share_groups.share_partitions import FetchResult
from ottla_broker.share_groups.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(
    ApiKey.SHARE_FETCH,
    versions=(1, 2),
    flexible=1,
    rights=(Right(Operation.read, ResourceType.group), Right(Operation.read, ResourceType.topic)),
)

RECORD_LIMIT = 1  # `share_acquire_mode`; the other mode, 0, is batch-optimized
NO_RECORDS = Records(b"")
NO_LEADER = LeaderIdAndEpoch(leader_id=i32(0), leader_epoch=i32(0))  # without an error; clients ignore it
Errors = dict[TopicIdPartition, KafkaError]


@API.handler()
async def share_fetch(ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    check_share_groups_served(ctx)
    check_member_named(request.group_id, request.member_id)
    group_id, member_id = request.group_id or "", request.member_id or ""
    ctx.check_authorized(Operation.read, Resource.group(group_id))
    acknowledgements = read_acknowledgements(request.topics)
    if request.is_renew_ack and (request.max_wait or request.min_bytes or request.max_bytes or request.max_records):
        raise KafkaError(ErrorCode.invalid_request, "a request that renews locks fetches nothing; its limits must be 0")
    session, added = await find_session(ctx, request, has_acknowledgements=bool(acknowledgements))
    acknowledging = asyncio.ensure_future(
        acknowledge_all(ctx, group_id, member_id, acknowledgements, may_renew=request.is_renew_ack)
    )
    fetched: dict[TopicIdPartition, FetchResult] = {}
    if request.share_session_epoch != FINAL_EPOCH and not request.is_renew_ack:
        fetched = await fetch(ctx, request, session)
    acknowledged = await acknowledging
    if request.share_session_epoch == FINAL_EPOCH:
        await close_session(ctx, session)
    return build_response(ctx, group_id, fetched, acknowledged, added)


async def find_session(
    ctx: RequestContext, request: ShareFetchRequest, *, has_acknowledgements: bool
) -> tuple[ShareSession, frozenset[TopicIdPartition]]:
    """The session, with the partitions that the request adds and without those that it removes; and
    those that it adds."""
    partitions = share_groups_of(ctx).partitions
    group_id, member_id, epoch = request.group_id or "", request.member_id or "", request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        if has_acknowledgements:
            raise KafkaError(ErrorCode.invalid_request, "nothing can be acknowledged before a share session is open")
        session = await partitions.open_session(group_id, member_id)
        ctx.connection.on_closed[group_id, member_id] = partial(partitions.on_disconnected, session)
    else:
        session = partitions.sessions.proceed(group_id, member_id, epoch)
    if epoch == FINAL_EPOCH:
        return session, frozenset()  # all that the member has acquired is released, whatever the request leaves out
    forgotten = [
        (topic.topic_id or NO_UUID, int(at)) for topic in request.forgotten_topics_data for at in topic.partitions
    ]
    added = frozenset(requested_partitions(request.topics)) - session.partitions.keys()
    session.update(requested_partitions(request.topics), forgotten)
    return session, added


async def fetch(
    ctx: RequestContext, request: ShareFetchRequest, session: ShareSession
) -> dict[TopicIdPartition, FetchResult]:
    """The result of each partition in the session; None for one without records. If the client may
    not read one of them, no partition is read, and the response does not wait.
    """
    forbidden = find_forbidden(ctx, session.partitions)
    if forbidden or not session.partitions:
        return {at: forbidden.get(at) for at in session.partitions}
    max_records = max(request.max_records, 0)
    quota_bytes = None if ctx.quota is None else ctx.quota.max_fetch_bytes()
    max_bytes = min(request.max_bytes, ctx.broker.config(FETCH_MAX_BYTES))
    limits = ShareFetchLimits(
        max_bytes=max_bytes if quota_bytes is None else min(max_bytes, quota_bytes),
        enough=max_records,
        at_most=max_records if request.share_acquire_mode == RECORD_LIMIT else UNLIMITED,
    )
    fetched = await share_groups_of(ctx).partitions.fetch(
        session, limits, min_bytes=request.min_bytes, max_wait_s=request.max_wait.total_seconds()
    )
    if ctx.quota is not None:
        ctx.quota.charge_share_fetch(
            sum(len(it.records) for it in fetched.values() if isinstance(it, DeliveredRecords))
        )
    return fetched


def build_response(
    ctx: RequestContext,
    group_id: str,
    fetched: dict[TopicIdPartition, FetchResult],
    acknowledged: Errors,
    added: Collection[TopicIdPartition],
) -> ShareFetchResponse:
    """`added`: partitions that are in the response even without records."""
    answered = [at for at in fetched if at in added or fetched[at] is not None or at in acknowledged]
    answered += [at for at in acknowledged if at not in fetched]
    results = {at: build_partition(ctx, at, fetched.get(at), acknowledged.get(at, NO_ERROR)) for at in answered}
    leaders = [int(one.current_leader.leader_id) for one in results.values() if one.current_leader is not NO_LEADER]
    lock_ms = share_groups_of(ctx).partitions.config_of(group_id).record_lock_duration_ms
    by_topic = groupby(sorted(answered), key=lambda at: at[0])
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=to_duration(lock_ms),
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(results[at] for at in of_topic))
            for topic_id, of_topic in by_topic
        ),
        node_endpoints=build_endpoints(ctx, leaders, NodeEndpoint),
    )


def build_partition(
    ctx: RequestContext, at: TopicIdPartition, fetched: FetchResult, acknowledged: KafkaError
) -> PartitionData:
    error = fetched if isinstance(fetched, KafkaError) else NO_ERROR
    leader = NO_LEADER
    if {error.code, acknowledged.code} & WRONG_BROKER_ERRORS:
        broker, epoch = current_leader(ctx, *at) or (-1, -1)
        leader = LeaderIdAndEpoch(leader_id=cast(i32, broker), leader_epoch=cast(i32, epoch))
    delivered = fetched if isinstance(fetched, DeliveredRecords) else None
    return PartitionData(
        partition_index=cast(i32, at[1]),
        error_code=error.code,
        error_message=error.message,
        acknowledge_error_code=cast(i16, int(acknowledged.code)),
        acknowledge_error_message=acknowledged.message,
        current_leader=leader,
        records=NO_RECORDS if delivered is None else Records(bytes(delivered.records)),
        acquired_records=()
        if delivered is None
        else tuple(
            AcquiredRecords(
                first_offset=cast(i64, one.first),
                last_offset=cast(i64, one.last),
                delivery_count=cast(i16, one.delivery_count),
            )
            for one in delivered.acquired
        ),
    )
