"""ElectLeaders (43), versions 0–2.

- Preferred (type 0): makes the first replica of a partition its leader, if it is live and in sync;
  otherwise PREFERRED_LEADER_NOT_AVAILABLE.
- Unclean (type 1, from v1): makes any live replica the leader of a partition without one, eligible
  leader replicas first. Records that the new leader does not have are lost.
  ELIGIBLE_LEADERS_NOT_AVAILABLE if none is live.
- ELECTION_NOT_NEEDED if the preferred replica, or for type 1 any replica, is the leader. No
  partitions requested means all; those that need no election are omitted then.
- All elections of a request are one commit, answered when a majority has it on disk. v2 is
  flexible.
"""

from typing import cast

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.log.file_names import TopicPartition
from ottla_broker.metadata.replication_control import Outcome
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import NO_ERROR, ErrorCode, KafkaError

API = Api(
    ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    flexible=2,
    is_forwarded=True,
    rights=(Right(Operation.alter, ResourceType.cluster),),
)

PREFERRED, UNCLEAN = 0, 1


@API.handler()
async def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not ctx.is_authorized(Operation.alter, CLUSTER):
        return build_refusal(request)
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.invalid_request, f"election type {request.election_type} is neither 0 nor 1")
    requested: list[TopicPartition] | None = None
    if request.topic_partitions is not None:
        requested = [(entry.topic, partition) for entry in request.topic_partitions for partition in entry.partitions]
    replicas = ctx.broker.active_controller().replication_control
    elect = replicas.elect_preferred_leaders if request.election_type == PREFERRED else replicas.elect_unclean_leaders
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=group_by_topic(await elect(requested)),
    )


def build_refusal(request: ElectLeadersRequest) -> ElectLeadersResponse:
    error = KafkaError(ErrorCode.cluster_authorization_failed)
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=error.code,
        replica_election_results=group_by_topic(
            {
                (entry.topic, partition): error
                for entry in request.topic_partitions or ()
                for partition in entry.partitions
            }
        ),
    )


def group_by_topic(outcomes: dict[TopicPartition, Outcome]) -> tuple[ReplicaElectionResult, ...]:
    results: dict[str, list[PartitionResult]] = {}
    for (topic, partition), outcome in outcomes.items():
        results.setdefault(topic, []).append(
            PartitionResult(
                partition_id=cast(i32, partition),
                error_code=(outcome or NO_ERROR).code,
                error_message=(outcome or NO_ERROR).message,
            )
        )
    return tuple(
        ReplicaElectionResult(topic=TopicName(topic), partition_result=tuple(partitions))
        for topic, partitions in results.items()
    )
