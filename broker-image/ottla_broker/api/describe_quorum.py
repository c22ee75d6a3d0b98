"""DescribeQuorum (55), versions 0–2: what Kafka's `kafka-metadata-quorum` shows.

- Returns the leader of the metadata log, its epoch and high watermark, and for voters and observers
  their log end offset on disk and the time of their last fetch. Only the leader knows: other
  brokers forward the request.
- Voters are those of the newest voter set in the log, which is in effect from its append on.
- Times are by the leader's wall clock: the present time for the leader itself, −1 for a voter that
  has not fetched in this epoch. An observer that copies from a voter fetches from the leader every
  ten seconds, and its values are of that fetch.
- v1 adds those times, v2 directory ids, voters' endpoints and messages.
"""

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

from ottla_broker.metadata.quorum import QuorumDescription, QuorumReplica
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.requests.api import DESCRIBE_CLUSTER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.DESCRIBE_QUORUM,
    versions=(0, 2),
    flexible=0,
    is_forwarded=True,
    is_served_while_starting=True,
    rights=(DESCRIBE_CLUSTER,),
)


@API.handler()
async def describe_quorum(ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    quorum = ctx.broker.quorum.describe()
    listener = ctx.broker.config.inter_broker_listener
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    build_partition(quorum, topic.topic_name, int(requested.partition_index))
                    for requested in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=tuple(
            Node(node_id=BrokerId(broker), listeners=(Listener(name=listener, host=host, port=u16(port)),))
            for broker, (host, port) in quorum.endpoints.items()
        ),
    )


def build_partition(quorum: QuorumDescription, topic: TopicName, partition: int) -> PartitionData:
    if (topic, partition) != (METADATA_TOPIC, 0):
        return PartitionData(
            partition_index=i32(partition),
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message="only the metadata log has a quorum",
            leader_id=BrokerId(-1),
            leader_epoch=i32(-1),
            high_watermark=i64(-1),
            current_voters=(),
            observers=(),
        )
    return PartitionData(
        partition_index=i32(partition),
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(quorum.leader_id),
        leader_epoch=i32(quorum.leader_epoch),
        high_watermark=i64(quorum.high_watermark),
        current_voters=tuple(build_replica_state(replica) for replica in quorum.voters),
        observers=tuple(build_replica_state(replica) for replica in quorum.observers),
    )


def build_replica_state(replica: QuorumReplica) -> ReplicaState:
    broker, directory = replica.key
    return ReplicaState(
        replica_id=BrokerId(broker),
        replica_directory_id=directory,
        log_end_offset=i64(replica.log_end_offset),
        last_fetch_timestamp=i64(replica.last_fetch_ms),
        last_caught_up_timestamp=i64(replica.last_caught_up_ms),
    )
