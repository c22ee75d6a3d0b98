"""DescribeQuorum (55), versions 0–2: what Kafka's `kafka-metadata-quorum` shows.

- Who leads the metadata log, in which epoch, what is committed; members ("voters") and other brokers that follow ("observers"), with how far each has
  it on its device and when it last asked. Only the leader knows: other brokers hand the question on.
- Members are those that the register names: who is asked for there and not written yet could not take over.
- Times are the leader's wall clock: now for itself, -1 for a member that has not been heard in this epoch.
- v1 adds those times, v2 directory ids, addresses of members and messages.
"""

import asyncio

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64, u16

from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.log_fetcher import parse_host_and_port
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.register import ReplicaKey
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0, is_forwarded=True, is_served_while_starting=True)

UNKNOWN = i64(-1)


@API.handler()
async def describe_quorum(ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not ctx.is_authorized(Operation.describe, Resource.cluster()):
        raise KafkaError(ErrorCode.cluster_authorization_failed)
    leadership = ctx.broker.quorum.leader_state
    if leadership is None:
        raise KafkaError(ErrorCode.not_controller, f"broker {ctx.broker.quorum.leader_id} leads the metadata log")
    listener = ctx.broker.config.inter_broker_listener
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    described(ctx, leadership, topic.topic_name, int(wanted.partition_index))
                    for wanted in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=tuple(
            Node(node_id=BrokerId(member.broker), listeners=(reached_at(listener, member.address),))
            for member in leadership.voter_sets[0]
            if member.address
        ),
    )


def reached_at(listener: str, address: str) -> Listener:
    host, port = parse_host_and_port(address)
    return Listener(name=listener, host=host, port=u16(port))


def described(ctx: RequestContext, leadership: LeaderState, topic: TopicName, partition: int) -> PartitionData:
    code = ErrorCode.none if (topic, partition) == (METADATA_TOPIC, 0) else ErrorCode.unknown_topic_or_partition
    there = code is ErrorCode.none
    members = sorted(member.key for member in leadership.voter_sets[0]) if there else []
    others = sorted(key for key in leadership.replicas if key not in members) if there else []
    return PartitionData(
        partition_index=i32(partition),
        error_code=code,
        error_message=None if there else "only the metadata log has a quorum",
        leader_id=BrokerId(leadership.me.broker if there else -1),
        leader_epoch=i32(leadership.epoch if there else -1),
        high_watermark=i64(ctx.broker.quorum.log.high_watermark) if there else UNKNOWN,
        current_voters=tuple(replica(ctx, leadership, key) for key in members),
        observers=tuple(replica(ctx, leadership, key) for key in others),
    )


def replica(ctx: RequestContext, leadership: LeaderState, key: ReplicaKey) -> ReplicaState:
    broker, directory = key
    now_ms, now_s = ctx.broker.runtime.now_ms(), asyncio.get_running_loop().time()
    follower = leadership.replicas.get(key)
    mine = key == leadership.me.key

    def wall_clock_ms(at_s: float) -> i64:
        return i64(now_ms - round((now_s - at_s) * 1000))

    heard_at, caught_up_at = (i64(now_ms), i64(now_ms)) if mine else (UNKNOWN, UNKNOWN)
    if follower is not None:
        heard_at, caught_up_at = wall_clock_ms(follower.last_fetch_s), wall_clock_ms(follower.last_caught_up_s)
    return ReplicaState(
        replica_id=BrokerId(broker),
        replica_directory_id=directory,
        log_end_offset=i64(leadership.acknowledged_offsets[key]) if mine or follower is not None else UNKNOWN,
        last_fetch_timestamp=heard_at,
        last_caught_up_timestamp=caught_up_at,
    )
