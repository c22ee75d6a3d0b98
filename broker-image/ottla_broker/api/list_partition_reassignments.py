"""ListPartitionReassignments (46), version 0.

- Lists the partitions that are being reassigned, with the replicas that are added and removed: all,
  or those requested.
- Partitions that are not being reassigned, or do not exist, are omitted, as in Kafka.
"""

from typing import cast

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.requests.api import DESCRIBE_CLUSTER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0, is_forwarded=True, rights=(DESCRIBE_CLUSTER,)
)


@API.handler()
async def list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    requested = (
        None
        if request.topics is None
        else {(topic.name, partition) for topic in request.topics for partition in topic.partition_indexes}
    )
    reassignments: dict[str, list[PartitionRecord]] = {}
    for topic, state in ctx.broker.active_controller().replication_control.ongoing_reassignments():
        if requested is None or (topic.name, state.partition) in requested:
            reassignments.setdefault(topic.name, []).append(state)
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            OngoingTopicReassignment(
                name=TopicName(name), partitions=tuple(describe_reassignment(state) for state in states)
            )
            for name, states in sorted(reassignments.items())
        ),
    )


def describe_reassignment(state: PartitionRecord) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=cast(i32, state.partition),
        replicas=cast("tuple[BrokerId, ...]", state.replicas),
        adding_replicas=cast("tuple[BrokerId, ...]", state.adding),
        removing_replicas=cast("tuple[BrokerId, ...]", state.removing),
    )
