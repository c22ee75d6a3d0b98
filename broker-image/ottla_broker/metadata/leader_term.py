"""The work of the metadata log's leader in one epoch: it announces itself, commits the first record
of its epoch, resigns when it loses contact with the majority, and replaces lost voters.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.raft_rules import ElectionTimeouts
from ottla_broker.metadata.voter_candidates import brokers_as_voters, may_join_voters, node_key
from ottla_broker.metadata.voter_set import Voter, VoterCandidate, VoterSet, next_voter_set, replace_voter
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

ANNOUNCEMENT_INTERVAL_S = 0.3
MAX_ANNOUNCEMENTS = 10  # to a broker that is no voter
VOTER_CHECK_INTERVAL_S = 0.25
VOTER_LOSS_TIMEOUT_S = 60.0
"""How long a voter does not fetch before another broker replaces it, and how long a voter beyond
the target stays.
"""


@dataclass(eq=False, repr=False)
class LeaderTerm:
    """`_listener`: the name of the inter-broker listener. `_writes_voters`: see
    `LeaderState.establish`."""

    _leader_state: LeaderState
    _log: MetadataLog
    _peers: QuorumPeers
    _timeouts: ElectionTimeouts
    _listener: str
    _max_voters: int
    _writes_voters: bool
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def run(self, on_established: Callable[[], None]) -> None:
        """Leads until cancelled or until the epoch is over. Calls `on_established` when this broker
        is the active controller.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._announce_leader())
            tasks.create_task(self._check_quorum())
            if await self._establish():
                on_established()
                if self._leader_state.is_voter:
                    await self._maintain_voters()
                else:
                    self._leader_state.end_term()  # its own removal is committed

    async def _establish(self) -> bool:
        """Commits the first records of the epoch. Returns False if that fails, which ends the
        epoch.
        """
        leader = self._leader_state
        try:
            await leader.establish(writes_voters=self._writes_voters)
        except KafkaError as reason:
            leader.fail(reason)
            return False
        logger.info("broker %d is the leader of the metadata log in epoch %d", leader.me.broker, leader.epoch)
        return True

    async def _announce_leader(self) -> None:
        """Sends BeginQuorumEpoch to the brokers that have not fetched in this epoch: to voters
        until they do, to others a few times, so that they need not wait for their fetches to time
        out."""
        leader = self._leader_state
        rounds = 0
        while not leader.is_over:
            brokers = [broker for broker in self._registered_brokers() if rounds < MAX_ANNOUNCEMENTS]
            receivers = {broker.key: broker for broker in (*brokers, *leader.other_voters)}
            receivers.pop(leader.me.key, None)
            missing = [peer for key, peer in receivers.items() if key not in leader.replicas]
            announcements = (self._peers.announce_leader(peer, leader.me, leader.epoch) for peer in missing)
            await asyncio.gather(*announcements, asyncio.sleep(ANNOUNCEMENT_INTERVAL_S))
            rounds += 1

    async def _check_quorum(self) -> None:
        """Ends the epoch when no majority has fetched for a while: another leader may have been
        elected (Kafka's rule).
        """
        leader = self._leader_state
        while not leader.is_over:
            remaining_s = leader.majority_heard_s + self._timeouts.check_quorum_timeout_s - self._loop.time()
            if remaining_s <= 0:
                logger.warning(
                    "broker %d resigns as leader of the metadata log: no majority of its voters has fetched for %g s",
                    leader.me.broker,
                    self._timeouts.check_quorum_timeout_s,
                )
                leader.end_term()
            else:
                await asyncio.sleep(remaining_s)

    # --- voters

    async def _maintain_voters(self) -> None:
        """Changes the voters, one at a time, to those that `_propose_voters` returns. Returns when
        the epoch is over.
        """
        leader = self._leader_state
        while not leader.is_over:
            await leader.wait_for_change(VOTER_CHECK_INTERVAL_S)
            proposed = self._propose_voters()
            if proposed is not None and leader.can_change_voters(proposed):
                try:
                    await leader.change_voters(proposed)
                except KafkaError as reason:
                    logger.info("failed to change the voters of the metadata log: %s", reason)
                    continue
                logger.info("voters of the metadata log: brokers %s", ", ".join(str(v.broker) for v in proposed))

    def _propose_voters(self) -> VoterSet | None:
        """The voter set to change to; None when no change is needed."""
        leader = self._leader_state
        with_own_address = replace_voter(leader.voters, leader.me)  # other voters send UpdateRaftVoter
        if with_own_address != leader.voters:
            return with_own_address
        return next_voter_set(
            leader.voters,
            leader.me.key,
            [self._candidate(broker) for broker in self._registered_brokers()],
            max_voters=self._max_voters,
            may_remove_surplus=self._loop.time() - leader.voters_changed_s > VOTER_LOSS_TIMEOUT_S,
        )

    def _registered_brokers(self) -> list[Voter]:
        return brokers_as_voters(self._log.image, self._listener)

    def _candidate(self, voter: Voter) -> VoterCandidate:
        leader = self._leader_state
        return VoterCandidate(
            voter,
            is_caught_up=leader.is_caught_up(voter.key, within_s=self._timeouts.fetch_s),
            is_lost=self._loop.time() - leader.last_fetch_s(voter.key) > VOTER_LOSS_TIMEOUT_S,
            is_shutting_down=self._log.image.brokers[voter.broker].shutting_down,
            may_join=may_join_voters(self._log.image, voter.broker),
            node=node_key(self._log.image.brokers[voter.broker]),
        )
