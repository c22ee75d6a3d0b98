"""Vote (52), versions 0–2: between brokers only.

- A candidate for the leader of the metadata log requests the votes of the other voters (KIP-595).
- A voter grants one vote in an epoch, to a candidate whose log is at least as up to date as its own
  (epoch of the last record, then length), and stores the vote before it responds.
- FENCED_LEADER_EPOCH for an older epoch than the known one. The response contains the known epoch
  and leader.
- v1 names the receiver by its id and directory id: any other broker responds with INVALID_VOTER_KEY
  (KIP-853).
- v2 adds pre-votes, which are not stored, and which a voter rejects while its leader responds
  (KIP-996).
"""

from kio.schema.types import BrokerId
from kio.schema.vote.v2.request import PartitionData as VotePartition
from kio.schema.vote.v2.request import VoteRequest as VoteMessage
from kio.schema.vote.v2.response import NodeEndpoint, PartitionData, TopicData, VoteResponse
from kio.static.primitive import i32, u16

from ottla_broker.metadata.raft_rules import EpochAndOffset, VoteRequest
from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.quorum_requests import metadata_partition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_schema import NO_UUID

API = Api(ApiKey.VOTE, versions=(0, 2), flexible=0, is_served_while_starting=True, rights=(CLUSTER_ACTION,))


@API.handler()
async def vote(ctx: RequestContext, request: VoteMessage) -> VoteResponse:
    topic, requested = metadata_partition((topic.topic_name, topic.partitions) for topic in request.topics)
    quorum = ctx.broker.quorum
    receiver = (
        None if request.voter_id < 0 else ReplicaKey(int(request.voter_id), requested.voter_directory_id or NO_UUID)
    )
    code, granted = quorum.check_receiver(request.cluster_id, receiver), False
    if code is ErrorCode.none:
        code, granted = await quorum.handle_vote(read_vote(requested))
    leader = quorum.current_leader()
    answer = PartitionData(
        partition_index=i32(0),
        error_code=code,
        leader_id=BrokerId(leader.leader),
        leader_epoch=i32(leader.epoch),
        vote_granted=granted,
    )
    nodes: tuple[NodeEndpoint, ...] = ()
    if leader.endpoint is not None:
        nodes = (NodeEndpoint(node_id=BrokerId(leader.leader), host=leader.endpoint[0], port=u16(leader.endpoint[1])),)
    return VoteResponse(
        error_code=ErrorCode.none, topics=(TopicData(topic_name=topic, partitions=(answer,)),), node_endpoints=nodes
    )


def read_vote(partition: VotePartition) -> VoteRequest:
    return VoteRequest(
        ReplicaKey(int(partition.replica_id), partition.replica_directory_id or NO_UUID),
        int(partition.replica_epoch),
        EpochAndOffset(int(partition.last_offset_epoch), int(partition.last_offset)),
        partition.pre_vote,
    )
