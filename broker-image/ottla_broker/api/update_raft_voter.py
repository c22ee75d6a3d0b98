"""UpdateRaftVoter (82), version 0: a voter of the metadata log names its new address, or the levels
of `kraft.version` that it supports (KIP-853).

- A voter sends it to the leader while the voter set says something else
  (`metadata.own_voter_entry`).
- INVALID_REQUEST without a listener, and from a voter that does not support `kraft.version` 1.
- VOTER_NOT_FOUND when no voter has this id and directory id; FENCED_LEADER_EPOCH and
  UNKNOWN_LEADER_EPOCH for another epoch than the leader's; REQUEST_TIMED_OUT when the change is not
  committed within TIMEOUT_S.
"""

from typing import Final

from kio.schema.types import BrokerId
from kio.schema.update_raft_voter.v0.request import UpdateRaftVoterRequest
from kio.schema.update_raft_voter.v0.response import CurrentLeader, UpdateRaftVoterResponse
from kio.static.primitive import i32

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.voter_set import Voter
from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.quorum_requests import check_cluster_id
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(ApiKey.UPDATE_RAFT_VOTER, versions=(0, 0), flexible=0, rights=(CLUSTER_ACTION,))

TIMEOUT_S: Final = 10.0


@API.handler()
async def update_raft_voter(ctx: RequestContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    try:
        await update_voter(ctx, request)
        code = ErrorCode.none
    except KafkaError as reason:
        code = reason.code
    leader = ctx.broker.quorum.current_leader()
    host, port = leader.endpoint or ("", 0)
    return UpdateRaftVoterResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        current_leader=CurrentLeader(
            leader_id=BrokerId(leader.leader), leader_epoch=i32(leader.epoch), host=host, port=i32(port)
        ),
    )


async def update_voter(ctx: RequestContext, request: UpdateRaftVoterRequest) -> None:
    check_cluster_id(ctx, request.cluster_id)
    quorum = ctx.broker.quorum
    if 0 <= request.current_leader_epoch < quorum.epoch:
        raise KafkaError(ErrorCode.fenced_leader_epoch)
    if request.current_leader_epoch > quorum.epoch:
        raise KafkaError(ErrorCode.unknown_leader_epoch)
    if not request.listeners:
        raise KafkaError(ErrorCode.invalid_request, "the request names no listener of the voter")
    at = request.listeners[0]
    address = format_host_and_port(at.host, int(at.port))
    versions = request.k_raft_version_feature
    voter = Voter(
        int(request.voter_id),
        request.voter_directory_id or NO_UUID,
        address,
        (int(versions.min_supported_version), int(versions.max_supported_version)),
    )
    await quorum.update_voter(voter, TIMEOUT_S)
