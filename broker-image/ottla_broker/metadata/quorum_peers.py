"""Requests of one replica of the metadata log to others, each over a connection of its own.

The voter set names an address of each voter, which may be out of date: disks may have been moved to
other machines. A vote is also requested at `controller.quorum.bootstrap.servers`. Requests carry
the voter's id and directory id, and any other receiver refuses them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.failure_detector import is_connection_refused
from ottla_broker.metadata.log_fetcher import connect
from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch, MetadataFetchRequest
from ottla_broker.metadata.raft_rules import EpochAndOffset, VoteRequest
from ottla_broker.metadata.voter_set import QuorumEndpoint, ReplicaKey, Voter
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS, ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError, describe_os_error

logger = logging.getLogger(__name__)


NO_EPOCH = -1
FOUNDING_TIMEOUT_S = 5.0
RETRY_PAUSE_S = 0.2


class QuorumPeers:
    """`bootstrap_servers`: addresses of brokers' inter-broker listeners. `cluster_id` None: not
    known yet. `timeout_s`: timeout of one request.
    """

    def __init__(
        self,
        me: Voter,
        bootstrap_servers: Iterable[QuorumEndpoint],
        client_id: str,
        timeout_s: float,
        cluster_id: str | None,
        channels: ChannelBuilder = UNSECURED_CHANNELS,
    ) -> None:
        self.cluster_id = cluster_id
        self.failures: dict[int, str] = {}  # broker id of a voter → why it did not answer the last request for its vote
        self.me = me
        self._bootstrap_servers = [endpoint for endpoint in bootstrap_servers if endpoint != me.endpoint]
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._channels = channels
        self._found_at: dict[ReplicaKey, QuorumEndpoint] = {}  # where a replica has answered

    def endpoints(self, known: Iterable[Voter]) -> list[QuorumEndpoint]:
        """Addresses at which other brokers may be: the `known` ones and the bootstrap servers."""
        voters = [self._found_at.get(voter.key, voter.endpoint) for voter in known if voter.key != self.me.key]
        return list(dict.fromkeys(at for at in (*voters, *self._bootstrap_servers) if at and at != self.me.endpoint))

    # --- the leader's and candidates' requests

    async def request_vote(self, voter: Voter, request: VoteRequest) -> tuple[bool, LeaderAndEpoch | None]:
        """Returns (vote is granted, leader that the voter knows). The vote is not granted if the
        voter cannot be reached. Raises what `check_not_recovered` raises.
        """
        from ottla_broker.metadata import quorum_messages  # takes 20 ms, and a broker without peers needs none of it

        for endpoint in self.endpoints([voter]):
            try:
                async with (
                    asyncio.timeout(self._timeout_s),
                    connect(self._channels, endpoint, self._client_id) as channel,
                ):
                    answer = await quorum_messages.send_vote(channel, voter.key, request, self.cluster_id)
            except (OSError, KafkaError) as reason:
                logger.debug("no vote of broker %d at %s: %s", voter.broker, format_host_and_port(*endpoint), reason)
                if endpoint == voter.endpoint:
                    self.failures[voter.broker] = describe_failure(reason)
                if isinstance(reason, KafkaError) and reason.code is ErrorCode.inconsistent_cluster_id:
                    await self.check_not_recovered(endpoint)
                continue
            self.failures.pop(voter.broker, None)
            self._found_at[voter.key] = endpoint
            return answer
        return False, None

    async def announce_leader(self, peer: Voter, leader: Voter, epoch: int) -> None:
        """Sends BeginQuorumEpoch. Failures are logged: the leader repeats it."""
        from ottla_broker.metadata import quorum_messages

        await self._notify(
            peer,
            lambda channel: quorum_messages.send_begin_quorum_epoch(channel, peer.key, leader, epoch, self.cluster_id),
        )

    async def end_epoch(self, peer: Voter, leader: Voter, epoch: int, successors: Sequence[ReplicaKey]) -> None:
        """Sends EndQuorumEpoch. Failures are logged: the receiver's fetch timeout has the same
        effect later.
        """
        from ottla_broker.metadata import quorum_messages

        await self._notify(
            peer,
            lambda channel: quorum_messages.send_end_quorum_epoch(channel, leader, epoch, successors, self.cluster_id),
        )

    # --- a voter's request

    async def update_own_entry(self, leader: QuorumEndpoint, epoch: int) -> None:
        """Sends UpdateRaftVoter for this broker. Raises OSError, KafkaError."""
        from ottla_broker.metadata import quorum_messages

        async with asyncio.timeout(self._timeout_s), connect(self._channels, leader, self._client_id) as channel:
            await quorum_messages.send_update_raft_voter(channel, self.me, epoch, self.cluster_id)

    async def _notify(self, peer: Voter, send: Callable[[Channel], Awaitable[None]]) -> None:
        """Sends a request over a connection of its own. A failure is logged."""
        endpoint = self._found_at.get(peer.key, peer.endpoint)
        if endpoint is None:
            return
        try:
            async with asyncio.timeout(self._timeout_s), connect(self._channels, endpoint, self._client_id) as channel:
                await send(channel)
        except (OSError, KafkaError) as reason:
            logger.debug("broker %d at %s: %s", peer.broker, format_host_and_port(*endpoint), reason)

    async def check_not_recovered(self, endpoint: QuorumEndpoint) -> None:
        """Called after INCONSISTENT_CLUSTER_ID. Raises that error when this broker's cluster was
        recovered as the cluster of the broker at `endpoint`: the old majority must not continue
        beside the recovered cluster (`quorum_recovery`).
        """
        from ottla_broker.metadata import quorum_messages

        try:
            async with asyncio.timeout(self._timeout_s), connect(self._channels, endpoint, self._client_id) as channel:
                replica = await quorum_messages.request_replica(channel)
        except (OSError, KafkaError):
            return
        if replica.previous_cluster_id is not None and replica.previous_cluster_id == self.cluster_id:
            raise KafkaError(
                ErrorCode.inconsistent_cluster_id,
                f"cluster {self.cluster_id} was recovered as cluster {replica.cluster_id}, to which the broker at "
                f"{format_host_and_port(*endpoint)} belongs: this disk is of the lost majority, give "
                "this broker an empty one",
            )

    # --- joining

    async def find_leader(self, endpoint: QuorumEndpoint) -> LeaderAndEpoch | None:
        """The leader that the broker at `endpoint` knows. Sets this broker's cluster id if it has
        none. Raises OSError, TimeoutError; KafkaError: INCONSISTENT_CLUSTER_ID when the broker
        belongs to another cluster."""
        from ottla_broker.metadata import quorum_messages

        async with asyncio.timeout(self._timeout_s), connect(self._channels, endpoint, self._client_id) as channel:
            if self.cluster_id is None:
                self.cluster_id = await quorum_messages.request_cluster_id(channel) or None
            # No leader has this epoch, so every broker refuses the fetch and names the leader.
            request = MetadataFetchRequest(
                self.me.broker, self.me.directory, NO_EPOCH, EpochAndOffset(-1, 0), cluster_id=self.cluster_id
            )
            answer = await channel.send(quorum_messages.build_fetch_request(request))
            response = quorum_messages.parse_fetch_response(answer)
            if response.error is ErrorCode.inconsistent_cluster_id:
                other = await quorum_messages.request_cluster_id(channel)
                raise KafkaError(
                    ErrorCode.inconsistent_cluster_id,
                    f"the log directory belongs to cluster {self.cluster_id}, but the broker at "
                    f"{format_host_and_port(*endpoint)} to cluster {other}",
                )
            return response.leader

    async def find_cluster(self) -> str | None:
        """Asks every bootstrap server for the id of its cluster, before this broker founds one.
        Returns the first id. Returns None when each server has refused the connection, has no
        cluster, or has not responded within FOUNDING_TIMEOUT_S; logs those that have not."""
        deadline_s = asyncio.get_running_loop().time() + FOUNDING_TIMEOUT_S
        pending: dict[QuorumEndpoint, str] = dict.fromkeys(self._bootstrap_servers, "")
        while pending and asyncio.get_running_loop().time() < deadline_s:
            answers = await asyncio.gather(*(self._ask_cluster_id(endpoint) for endpoint in pending))
            for endpoint, (cluster_id, failure) in zip(tuple(pending), answers, strict=True):
                if cluster_id:
                    return cluster_id
                if failure is None:
                    del pending[endpoint]
                else:
                    pending[endpoint] = failure
            if pending:
                await asyncio.sleep(RETRY_PAUSE_S)
        for endpoint, failure in pending.items():
            logger.warning(
                "cannot ask the broker at %s for its cluster id: %s", format_host_and_port(*endpoint), failure
            )
        return None

    async def _ask_cluster_id(self, endpoint: QuorumEndpoint) -> tuple[str, str | None]:
        """Returns (cluster id, failure). The id is empty if the broker has no cluster or cannot be
        asked; the failure is None unless it is unknown whether the broker has a cluster."""
        from ottla_broker.metadata import quorum_messages

        try:
            async with asyncio.timeout(self._timeout_s), connect(self._channels, endpoint, self._client_id) as channel:
                return await quorum_messages.request_cluster_id(channel), None
        except (OSError, KafkaError) as reason:
            is_absent = isinstance(reason, OSError) and is_connection_refused(reason)
            return "", None if is_absent else str(reason) or type(reason).__name__


def describe_failure(reason: OSError | KafkaError) -> str:
    if isinstance(reason, TimeoutError):
        return "does not answer"
    if isinstance(reason, KafkaError):
        return "has another disk" if reason.code is ErrorCode.invalid_voter_key else reason.message or reason.code.name
    return describe_os_error(reason)
