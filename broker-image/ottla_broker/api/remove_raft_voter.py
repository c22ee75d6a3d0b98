"""RemoveRaftVoter (81), version 0: what `kafka-metadata-quorum.sh remove-controller` sends
(KIP-853).

- The broker stays in the cluster, and its copy of the metadata log no longer counts for commits and
  elections.
- VOTER_NOT_FOUND when no voter has this id and directory id; INVALID_REQUEST for the only voter;
  REQUEST_TIMED_OUT when the change is not committed within TIMEOUT_S.
- The leader can be removed too: it commits the change, and then another voter is elected.
- No leader adds the broker again by itself: `controller.quorum.auto.join.enable` of the broker is
  set to false, also when the removal then fails. Another broker may take its place.
"""

from typing import Final

from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse

from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.requests.api import ALTER_CLUSTER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.quorum_requests import check_cluster_id, set_auto_join
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_schema import NO_UUID

API = Api(ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0, is_forwarded=True, rights=(ALTER_CLUSTER,))

TIMEOUT_S: Final = 10.0


@API.handler()
async def remove_raft_voter(ctx: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    check_cluster_id(ctx, request.cluster_id)
    key = ReplicaKey(int(request.voter_id), request.voter_directory_id or NO_UUID)
    if any(voter.key == key for voter in ctx.broker.quorum.describe_replica().voters):
        await set_auto_join(ctx, key.broker, "false")  # before the change: the leader would add it again
    await ctx.broker.quorum.remove_voter(key, TIMEOUT_S)
    return RemoveRaftVoterResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None)
