"""BeginQuorumEpoch (53), versions 0–1: between brokers only.

- The new leader of the metadata log announces its epoch, so that followers need not wait for their
  fetches to time out.
- An older epoch than the known one changes nothing. If the leader is known already, this broker
  only prefers it to other voters for its fetches. The response contains the epoch and leader that
  are then known.
- v1 adds the leader's endpoint, and the receiver's id and directory id: any other broker responds
  with INVALID_VOTER_KEY.
"""

from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest
from kio.schema.begin_quorum_epoch.v1.response import BeginQuorumEpochResponse, PartitionData, TopicData
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch
from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.quorum_requests import metadata_partition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_schema import NO_UUID

API = Api(
    ApiKey.BEGIN_QUORUM_EPOCH, versions=(0, 1), flexible=1, is_served_while_starting=True, rights=(CLUSTER_ACTION,)
)


@API.handler()
async def begin_quorum_epoch(ctx: RequestContext, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    topic, announced = metadata_partition((topic.topic_name, topic.partitions) for topic in request.topics)
    quorum = ctx.broker.quorum
    receiver = (
        None if request.voter_id < 0 else ReplicaKey(int(request.voter_id), announced.voter_directory_id or NO_UUID)
    )
    code = quorum.check_receiver(request.cluster_id, receiver)
    if code is ErrorCode.none:
        endpoint = next(((at.host, int(at.port)) for at in request.leader_endpoints), None)
        await quorum.handle_begin_quorum_epoch(
            LeaderAndEpoch(int(announced.leader_epoch), int(announced.leader_id), endpoint)
        )
    leader = quorum.current_leader()
    answer = PartitionData(
        partition_index=i32(0), error_code=code, leader_id=BrokerId(leader.leader), leader_epoch=i32(leader.epoch)
    )
    return BeginQuorumEpochResponse(
        error_code=ErrorCode.none, topics=(TopicData(topic_name=topic, partitions=(answer,)),)
    )
