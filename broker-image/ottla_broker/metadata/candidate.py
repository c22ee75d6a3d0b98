"""Requests the other voters' votes for a candidate in the metadata log's quorum, or before the
election their pre-votes, which tell whether it could win.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla_broker.metadata import raft_rules
from ottla_broker.metadata.leader_finder import LeaderFinder
from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.raft_replica import RaftReplica
from ottla_broker.metadata.raft_rules import RaftState, Role, VoteRequest
from ottla_broker.metadata.voter_history import VoterHistory
from ottla_broker.metadata.voter_set import Voter


@dataclass(eq=False, repr=False)
class Candidate:
    """`_finder` logs why no majority has answered. `_observe` is called with each leader that
    another voter names.
    """

    _replica: RaftReplica
    _peers: QuorumPeers
    _voters: VoterHistory
    _finder: LeaderFinder
    _observe: Callable[[LeaderAndEpoch], Awaitable[None]]

    async def request_votes(self, state: RaftState) -> None:
        """Returns when every voter has answered or the request to it has failed."""
        me = self._replica.view()
        request = VoteRequest(me.key, state.epoch, me.log_end, is_pre_vote=state.role is Role.PROSPECTIVE)

        async def request_vote(voter: Voter) -> None:
            granted, leader = await self._peers.request_vote(voter, request)
            if leader is not None and not granted:
                await self._observe(leader)
            await self._replica.transition(
                lambda current, me: raft_rules.count_vote(current, voter.key, state, granted=granted, me=me)
            )

        others = [voter for voter in self._voters.latest if voter.key != me.key]
        try:
            await asyncio.gather(*map(request_vote, others))
        finally:  # also when cancelled: a request whose packets are lost takes longer than an election
            self._finder.log_missing_majority(others)
