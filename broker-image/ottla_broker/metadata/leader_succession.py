"""How a leader of the metadata log that stops makes another voter its successor."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.leader_term import hand_over_vote, registered_brokers
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.raft_rules import ElectionTimeouts
from ottla_broker.metadata.voter_set import Voter

logger = logging.getLogger(__name__)

SUCCESSION_TIMEOUT_S: Final = 1.0
MAJORITY_TIMEOUT_S: Final = 0.6  # voters fetch more often


@dataclass(eq=False, repr=False)
class LeaderSuccession:
    """Ends the leadership of a leader of the metadata log that stops. `_listener`: the name of the
    inter-broker listener.
    """

    _me: Voter
    _peers: QuorumPeers
    _image: MetadataImage
    _listener: str
    _timeouts: ElectionTimeouts

    async def hand_over(self, leader: LeaderState) -> None:
        """Makes another voter the leader. Returns when one leads, or after SUCCESSION_TIMEOUT_S.
        With one or two voters, another broker first becomes the only voter: those that remain would
        have no majority.
        """
        if len(leader.voters) <= 2:
            brokers = registered_brokers(self._image, self._listener)
            staying = [voter for voter in brokers if not self._image.brokers[voter.broker].shutting_down]
            await hand_over_vote(leader, staying, self._timeouts.fetch_s)
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
