"""EndQuorumEpoch (54), versions 0–1: between brokers only.

- The leader of the metadata log, before it stops, asks the other voters to elect another one. The
  first of the preferred candidates stands for election at once, the others later.
- A request with an older epoch, or with another leader than the known one of its epoch, changes
  nothing. A newer epoch is adopted. The response contains the epoch and leader that are then known.
- v1 adds the candidates' directory ids; with v0 no candidate is preferred.
"""

from kio.schema.end_quorum_epoch.v1.request import EndQuorumEpochRequest
from kio.schema.end_quorum_epoch.v1.response import EndQuorumEpochResponse, PartitionData, TopicData
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch
from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.quorum_requests import metadata_partition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(ApiKey.END_QUORUM_EPOCH, versions=(0, 1), flexible=1, is_served_while_starting=True, rights=(CLUSTER_ACTION,))


@API.handler()
async def end_quorum_epoch(ctx: RequestContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    topic, ended = metadata_partition((topic.topic_name, topic.partitions) for topic in request.topics)
    quorum = ctx.broker.quorum
    code = quorum.check_receiver(request.cluster_id, None)
    if code is ErrorCode.none:
        endpoint = next(((at.host, int(at.port)) for at in request.leader_endpoints), None)
        successors = tuple(
            ReplicaKey(int(one.candidate_id), one.candidate_directory_id)
            for one in ended.preferred_candidates
            if one.candidate_directory_id is not None
        )
        await quorum.handle_end_quorum_epoch(
            LeaderAndEpoch(int(ended.leader_epoch), int(ended.leader_id), endpoint), successors
        )
    leader = quorum.current_leader()
    answer = PartitionData(
        partition_index=i32(0), error_code=code, leader_id=BrokerId(leader.leader), leader_epoch=i32(leader.epoch)
    )
    return EndQuorumEpochResponse(
        error_code=ErrorCode.none, topics=(TopicData(topic_name=topic, partitions=(answer,)),)
    )
