"""How a leader of the metadata log makes another voter its successor before it stops."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.raft_rules import ElectionTimeouts
from ottla_broker.metadata.voter_candidates import brokers_as_voters
from ottla_broker.metadata.voter_set import Voter
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

SUCCESSION_TIMEOUT_S: Final = 1.0
MAJORITY_TIMEOUT_S: Final = 0.6  # voters fetch more often
VOTER_CHANGE_TIMEOUT_S: Final = 1.0
CATCH_UP_CHECK_INTERVAL_S: Final = 0.02


@dataclass(eq=False, repr=False)
class LeaderSuccession:
    """Ends this broker's leadership of the metadata log. `_listener`: the name of the inter-broker
    listener.
    """

    _me: Voter
    _peers: QuorumPeers
    _image: MetadataImage
    _listener: str
    _timeouts: ElectionTimeouts

    async def hand_over(self, leader: LeaderState) -> None:
        """Makes another voter the leader. Returns when no majority fetches from this broker any
        more, because another leads, or SUCCESSION_TIMEOUT_S after EndQuorumEpoch was sent.
        With one or two voters, the remaining ones would have no majority. So another broker first
        becomes the only voter, if that succeeds within VOTER_CHANGE_TIMEOUT_S. Without any other
        voter, returns then.
        """
        if len(leader.voters) <= 2:
            brokers = brokers_as_voters(self._image, self._listener)
            staying = [voter for voter in brokers if not self._image.brokers[voter.broker].shutting_down]
            await make_only_voter(leader, staying, self._timeouts.fetch_s)
        if not leader.other_voters:
            return
        await self.end_epoch(leader)
        try:
            async with asyncio.timeout(SUCCESSION_TIMEOUT_S):
                while not leader.is_over and leader.hears_majority(MAJORITY_TIMEOUT_S):
                    await leader.wait_for_change(MAJORITY_TIMEOUT_S / 10)
        except TimeoutError:
            logger.info("no other voter became leader of the metadata log within %g s", SUCCESSION_TIMEOUT_S)

    async def end_epoch(self, leader: LeaderState) -> None:
        """Tells the other voters to elect another leader, the most caught-up one first."""
        voters = leader.other_voters
        acknowledged, brokers = leader.acknowledged_offsets, self._image.brokers
        staying = [v.key for v in voters if v.broker not in brokers or not brokers[v.broker].shutting_down]
        successors = sorted(staying, key=lambda key: -acknowledged.get(key, 0))
        await asyncio.gather(*(self._peers.end_epoch(voter, self._me, leader.epoch, successors) for voter in voters))


async def make_only_voter(leader: LeaderState, brokers: Sequence[Voter], fetch_timeout_s: float) -> None:
    """Makes one of `brokers`, but not the leader, the only voter, preferably one that is a voter
    already. A failure is logged.
    """
    known = {voter.key for voter in leader.voters}
    others = sorted(
        (voter for voter in brokers if voter.key != leader.me.key),
        key=lambda voter: (voter.key not in known, voter.broker),
    )
    if not others:
        return
    try:
        async with asyncio.timeout(VOTER_CHANGE_TIMEOUT_S):
            successor = await _wait_until_one_is_caught_up(leader, others, fetch_timeout_s)
            for voters in ((leader.me, successor), (successor,)):
                if {voter.key for voter in voters} != known and leader.can_change_voters(voters):
                    await leader.change_voters(voters)
    except (TimeoutError, KafkaError) as reason:
        logger.info(
            "cannot make another broker the only voter of the metadata log: %s",
            str(reason) or "none has caught up in time",
        )


async def _wait_until_one_is_caught_up(leader: LeaderState, brokers: Sequence[Voter], fetch_timeout_s: float) -> Voter:
    """Returns one of `brokers` as soon as it has all committed records; the newest may still be on
    their way to it."""
    while True:
        for broker in brokers:
            if leader.is_caught_up(broker.key, fetch_timeout_s):
                return broker
        await leader.wait_for_change(CATCH_UP_CHECK_INTERVAL_S)
