"""AlterPartitionReassignments (45), versions 0–1.

- Starts to move partitions to other brokers (KIP-455), or cancels that with null replicas. The
  response is sent when it has started.
- Added replicas catch up first. Removed replicas leave when every target is in sync, and not before
  (rule 12).
- A reassignment that replaces another keeps the original replicas, to which cancelling returns.
- INVALID_REPLICA_ASSIGNMENT: no replicas, a replica named twice, a broker that is not registered,
  or no in-sync replica left. NO_REASSIGNMENT_IN_PROGRESS: nothing to cancel. A partition named
  twice is INVALID_REQUEST.
- v1 can forbid a change of the replication factor (INVALID_REPLICATION_FACTOR, KIP-860).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from ottla_broker.metadata.replication_control import PartitionReassignment
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError

API = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    flexible=0,
    is_forwarded=True,
    rights=(Right(Operation.alter, ResourceType.cluster),),
)

NAMED_TWICE = KafkaError(ErrorCode.invalid_request, "the request names the partition twice")


@API.handler()
async def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not ctx.is_authorized(Operation.alter, CLUSTER):
        error = KafkaError(ErrorCode.cluster_authorization_failed)
        return build_response(request, error, defaultdict(lambda: error))
    requested = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    times_named = Counter(requested)
    moves = [
        PartitionReassignment(topic.name, one.partition_index, one.replicas)
        for topic in request.topics
        for one in topic.partitions
        if times_named[topic.name, one.partition_index] == 1
    ]
    results = await ctx.broker.active_controller().replication_control.reassign_partitions(
        moves, same_factor=not request.allow_replication_factor_change
    )
    outcomes = {(move.topic, move.partition): outcome or NO_ERROR for move, outcome in zip(moves, results, strict=True)}
    return build_response(request, NO_ERROR, defaultdict(lambda: NAMED_TWICE, outcomes))


def build_response(
    request: AlterPartitionReassignmentsRequest, error: KafkaError, outcomes: Mapping[tuple[str, int], KafkaError]
) -> AlterPartitionReassignmentsResponse:
    """`error`: that of the whole request. `outcomes`: one for each partition."""
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.code,
        error_message=error.message or None,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    build_partition(one, outcomes[topic.name, one.partition_index]) for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def build_partition(requested: ReassignablePartition, outcome: KafkaError) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=requested.partition_index,
        error_code=outcome.code,
        error_message=outcome.message,
    )
