"""BeginQuorumEpoch (53), versions 0–1: between brokers only.

- The new leader of the metadata log announces its epoch, so that followers need not wait for their fetches to time
  out.
- An epoch that is not newer than the known one changes nothing. The response contains the known epoch and leader.
- v1 adds the leader's endpoint; v0, which has none, changes nothing.
"""

from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest
from kio.schema.begin_quorum_epoch.v1.response import BeginQuorumEpochResponse, PartitionData, TopicData
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import CLUSTER, Operation
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.BEGIN_QUORUM_EPOCH, versions=(0, 1), flexible=1, is_served_while_starting=True)


@API.handler()
async def begin_quorum_epoch(ctx: RequestContext, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    ctx.check_authorized(Operation.cluster_action, CLUSTER)
    quorum = ctx.broker.quorum
    if request.cluster_id not in (None, quorum.cluster_id):
        raise KafkaError(ErrorCode.inconsistent_cluster_id)
    topics = []
    for topic in request.topics:
        for announced in topic.partitions if topic.topic_name == METADATA_TOPIC else ():
            for at in request.leader_endpoints[:1]:
                await quorum.handle_begin_quorum_epoch(
                    int(announced.leader_id), int(announced.leader_epoch), format_host_and_port(at.host, at.port)
                )
        current = PartitionData(
            partition_index=i32(0),
            error_code=ErrorCode.none,
            leader_id=BrokerId(quorum.leader_id),
            leader_epoch=i32(quorum.epoch),
        )
        topics.append(TopicData(topic_name=topic.topic_name, partitions=(current,)))
    return BeginQuorumEpochResponse(error_code=ErrorCode.none, topics=tuple(topics))
