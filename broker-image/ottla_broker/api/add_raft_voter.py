"""AddRaftVoter (80), versions 0–1: what `kafka-metadata-quorum.sh add-controller` sends (KIP-853).

- Makes a broker a voter of the metadata log. Its directory id is that of the first of its
  `log.dirs`.
- The leader waits until the broker has caught up and the previous change of voters is committed.
  After the request's timeout the error is REQUEST_TIMED_OUT. DUPLICATE_VOTER when the broker is a
  voter, with any directory id.
- Removes the broker's `controller.quorum.auto.join.enable=false`, which RemoveRaftVoter sets. It
  stays removed if the addition then fails.
- The voter's address is that of the request's first listener until the broker registers, and then
  that of its inter-broker listener.
- v1's flag for a response before the change is committed is accepted, and the response still waits.
"""

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.voter_set import Voter
from ottla_broker.requests.api import ALTER_CLUSTER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.requests.quorum_requests import check_cluster_id, set_auto_join
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID

API = Api(ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible=0, is_forwarded=True, rights=(ALTER_CLUSTER,))


@API.handler()
async def add_raft_voter(ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    check_cluster_id(ctx, request.cluster_id)
    if not request.listeners:
        raise KafkaError(ErrorCode.invalid_request, "the request names no listener of the voter")
    at = request.listeners[0]
    voter = Voter(
        int(request.voter_id), request.voter_directory_id or NO_UUID, format_host_and_port(at.host, int(at.port))
    )
    await set_auto_join(ctx, voter.broker, None)
    await ctx.broker.quorum.add_voter(voter, request.timeout.total_seconds())
    return AddRaftVoterResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None)
