"""AlterPartition (56), versions 2–3: between brokers only, handled by the active controller.

- A leader proposes new in-sync replicas for its partitions. All partitions of a request are one
  commit; a rejected one does not affect the others.
- A proposal is accepted only if it is based on the current state: a lower leader epoch is
  FENCED_LEADER_EPOCH, a lower partition epoch INVALID_UPDATE_VERSION, and a higher one of either
  NOT_CONTROLLER, because this broker's image is the older one then.
- A replica that may not be in sync (fenced, in controlled shutdown, or registered with another
  epoch) is INELIGIBLE_REPLICA.
- A reassignment completes here when its last target is in sync. If that removes the leader:
  NEW_LEADER_ELECTED.
- The response contains the new state. There is no recovery state after an unclean election.
- v3 adds broker epochs of the replicas (KIP-903).
"""

from typing import cast

from kio.schema.alter_partition.v2.request import AlterPartitionRequest as RequestV2
from kio.schema.alter_partition.v2.response import AlterPartitionResponse as ResponseV2
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.alter_partition.v3.response import AlterPartitionResponse
from kio.schema.alter_partition.v3.response import PartitionData as Altered
from kio.schema.alter_partition.v3.response import TopicData as AlteredTopic
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla_broker.metadata.isr_changes import IsrChangeRequest
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.requests.api import CLUSTER_ACTION, Api, build_error_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(ApiKey.ALTER_PARTITION, versions=(2, 3), flexible=2, is_served_while_starting=True, rights=(CLUSTER_ACTION,))


@API.handler(3, 3)
async def alter_partition(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    controller = ctx.broker.active_controller()
    controller.cluster_control.check_broker_epoch(request.broker_id, request.broker_epoch)
    proposals = [
        IsrChangeRequest(
            topic.topic_id or NO_UUID,
            one.partition_index,
            one.leader_epoch,
            one.partition_epoch,
            [(member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs],
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    outcomes = iter(await controller.replication_control.alter_partitions(request.broker_id, proposals))
    return AlterPartitionResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        topics=tuple(
            AlteredTopic(
                topic_id=topic.topic_id,
                partitions=tuple(build_partition(one, next(outcomes)) for one in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def build_partition(requested: PartitionData, outcome: PartitionRecord | KafkaError) -> Altered:
    if isinstance(outcome, KafkaError):
        return build_error_response(Altered, outcome, partition_index=requested.partition_index)
    return Altered(
        partition_index=requested.partition_index,
        error_code=ErrorCode.none,
        leader_id=BrokerId(outcome.leader),
        leader_epoch=i32(outcome.leader_epoch),
        isr=cast("tuple[BrokerId, ...]", outcome.isr),
        partition_epoch=i32(outcome.partition_epoch),
    )


@API.handler(2, 2)
async def alter_partition_v2(ctx: RequestContext, request: RequestV2) -> ResponseV2:
    with_epochs = AlterPartitionRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        topics=tuple(
            TopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=one.partition_index,
                        leader_epoch=one.leader_epoch,
                        new_isr_with_epochs=tuple(BrokerState(broker_id=broker) for broker in one.new_isr),
                        leader_recovery_state=one.leader_recovery_state,
                        partition_epoch=one.partition_epoch,
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
    response: ResponseV2 = convert_message(await alter_partition(ctx, with_epochs), ResponseV2)
    return response
