"""The work of one replica of the metadata log in its current role, by the rules of `raft_rules`.

The loop leads, follows, requests votes or looks for a leader until the role, the epoch or the
leader changes. Every change goes through `RaftReplica.transition`, which stores the new state
before the loop and other brokers see it.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla_broker.metadata import raft_rules
from ottla_broker.metadata.candidate import Candidate
from ottla_broker.metadata.fetch_sources import FetchSources
from ottla_broker.metadata.leader_endpoints import LeaderEndpoints
from ottla_broker.metadata.leader_finder import LeaderFinder
from ottla_broker.metadata.leader_follower import LeaderFollower
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.leader_succession import LeaderSuccession
from ottla_broker.metadata.leader_term import LeaderTerm
from ottla_broker.metadata.log_fetcher import FetchRefused, MetadataLogFetcher
from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.observer_fetches import ObserverFetches
from ottla_broker.metadata.own_voter_entry import maintain_own_entry
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.quorum_settings import QuorumSettings
from ottla_broker.metadata.raft_replica import RaftReplica
from ottla_broker.metadata.raft_rules import RaftState, Role
from ottla_broker.metadata.voter_set import QuorumEndpoint, Voter
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

ASK_PAUSE_S = 0.1
DISK_RETRY_PAUSE_S = 0.5


class RoleLoop:
    """`leader_state`: None while this broker does not lead. `caught_up`: done when the image has
    been as current as the leader's for the first time, or this broker has led. `cluster_id`: the
    cluster that this broker belongs to; None before it has caught up in its first one.
    `writes_voters`: the log of a founding broker has no record of the voters yet. `is_stopping`:
    this broker begins no more elections.

    `on_elected` and `on_resigned` are called when this broker becomes the active controller and
    when it no longer is.
    """

    def __init__(
        self,
        me: Voter,
        log: MetadataLog,
        replica: RaftReplica,
        fetcher: MetadataLogFetcher,
        peers: QuorumPeers,
        settings: QuorumSettings,
        runtime: Runtime,
        on_elected: Callable[[], None],
        on_resigned: Callable[[], None],
    ) -> None:
        self._me = me
        self._log = log
        self._replica = replica
        self._fetcher = fetcher
        self._peers = peers
        self._settings = settings
        self._timeouts = settings.timeouts
        self._runtime = runtime
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._loop = asyncio.get_running_loop()
        self.leader_state: LeaderState | None = None
        self.caught_up: asyncio.Future[None] = self._loop.create_future()
        self.cluster_id = peers.cluster_id
        self.writes_voters = False
        self.is_stopping = False
        self.leader_endpoints = LeaderEndpoints(log.voters)
        self.sources = FetchSources(me.key, log, settings.listener, self._loop.time)
        self.observer_fetches = ObserverFetches(me.key, log, replica, self._loop.time)
        self._finder = LeaderFinder(peers, log, settings.listener, self.observe)
        self._candidate = Candidate(replica, peers, log.voters, self._finder, self.observe)
        self._succession = LeaderSuccession(me, peers, log.image, settings.listener, self._timeouts)

    async def run(self) -> None:
        """Works until cancelled. Raises KafkaError: INCONSISTENT_CLUSTER_ID, or the log's error
        when it fails.
        """
        while True:
            await self._run_role()

    async def resign(self) -> None:
        """Called before a stop. Makes another voter the leader, if this broker leads; see
        `LeaderSuccession.hand_over`.
        """
        was_stopping, self.is_stopping = self.is_stopping, True
        if not was_stopping and self.leader_state is not None:
            await self._succession.hand_over(self.leader_state)

    async def observe(self, leader: LeaderAndEpoch) -> None:
        """Called with each epoch, and its leader if it is known, that another broker names."""
        self.leader_endpoints.observe(leader)
        await self._replica.transition(
            lambda state, me: raft_rules.observe_epoch(state, leader.epoch, leader.leader, me)
        )

    def end_term(self) -> None:
        """Ends the epoch in which this broker leads, if it does."""
        if self.leader_state is not None:
            self.leader_state.end_term()

    async def _run_role(self) -> None:
        """Works in the current role until the role, the epoch or the leader changes."""
        state = self._replica.state
        work = self._loop.create_task(self._work_as(state))
        try:
            while self._replica.state.activity == state.activity:
                if work.done():
                    work.result()
                if self._replica.has_expired and not self.is_stopping:
                    await self._replica.transition(raft_rules.expire)
                else:
                    await self._replica.wait_for_change(work, may_expire=not self.is_stopping)
        except KafkaError as reason:
            if self._is_fatal(reason):
                raise
            logger.warning("broker %d pauses in the quorum of the metadata log: %s", self._me.broker, reason)
            await asyncio.sleep(DISK_RETRY_PAUSE_S)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _is_fatal(self, reason: KafkaError) -> bool:
        """True if no later attempt can succeed. False for a full disk, because other files may be
        deleted."""
        return reason.code is not ErrorCode.kafka_storage_error or self._log.partition_log.failure is not None

    async def _work_as(self, state: RaftState) -> None:
        match state.role:
            case Role.LEADER:
                await self._lead(state.epoch)
            case Role.PROSPECTIVE | Role.CANDIDATE:
                await self._candidate.request_votes(state)
            case Role.FOLLOWER:
                while (
                    endpoint := self.leader_endpoints.find(self._replica.state.epoch, state.leader)
                ) is None or self._peers.cluster_id is None:
                    await self._ask_for_leader()
                await self._follow(state, endpoint)
            case _:
                while True:
                    await self._ask_for_leader()

    # --- following

    async def _follow(self, state: RaftState, endpoint: QuorumEndpoint) -> None:
        # A voter fetches several times within the leader's check-quorum timeout. An observer can
        # wait for a voter in vain, and then for the leader, within its own fetch timeout.
        fetch_s = self._timeouts.fetch_s
        follower = LeaderFollower(
            self._fetcher,
            self.sources,
            state.leader,
            endpoint,
            state.epoch,
            int(fetch_s * 1000 / (10 if self._replica.view().is_voter else 3)),
            fetch_s / 4,
            self._on_fetch_response,
            self._replica.expire_soon,
            self.observe,
        )
        self._fetcher.cluster_id = self._peers.cluster_id
        entry = self._loop.create_task(maintain_own_entry(self._log.voters, self._peers, endpoint, state.epoch))
        try:
            await follower.run()
        except FetchRefused:  # another cluster's broker has the address now
            if not self.caught_up.done():
                await self._peers.find_leader(endpoint)  # raises, with the names of both clusters
            self._replica.expire_soon()
        finally:
            entry.cancel()
            self.observer_fetches.notify()

    def _on_fetch_response(self, response: MetadataFetchResponse) -> None:
        self.observer_fetches.notify_commits()
        if response.high_watermark >= 0 and self._log.image.end_offset >= response.high_watermark:
            self._set_caught_up()

    def _set_caught_up(self) -> None:
        if not self.caught_up.done():
            self.cluster_id = self._peers.cluster_id
            self.sources.is_caught_up = True
            self.caught_up.set_result(None)

    async def _ask_for_leader(self) -> None:
        """Raises INCONSISTENT_CLUSTER_ID when no other broker belongs to this broker's cluster,
        as long as this one has never caught up.
        """
        cluster_error = await self._finder.ask(self.cluster_id)
        if cluster_error is not None and not self.caught_up.done():
            raise cluster_error
        await asyncio.sleep(ASK_PAUSE_S)

    # --- leading

    async def _lead(self, epoch: int) -> None:
        """Leads until there is a newer epoch, no majority fetches, or this broker's log fails."""
        over: asyncio.Future[None] = self._loop.create_future()
        leader = LeaderState(epoch, self._me, self._log, self._loop.time, lambda: over.set_result(None))
        term = LeaderTerm(
            leader,
            self._log,
            self._peers,
            self._timeouts,
            self._settings.listener,
            self._settings.max_voters,
            self.writes_voters,
        )
        self.leader_state = leader
        work = self._loop.create_task(term.run(self._on_established))
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            leader.end_term()
            self.leader_state = None
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if leader.is_established:
                self._on_resigned()
            logger.info("broker %d is no longer the leader of the metadata log", self._me.broker)
        is_removed = leader.is_established and not leader.is_voter
        if leader.failure is not None or (is_removed and not self.is_stopping):
            await self._succession.end_epoch(leader)
        if leader.failure is not None:
            if self._is_fatal(leader.failure):
                raise leader.failure
            logger.warning("broker %d cannot lead the metadata log: %s", self._me.broker, leader.failure)
        await self._replica.transition(lambda state, me: raft_rules.resign(state) if state.epoch == epoch else state)

    def _on_established(self) -> None:
        self.writes_voters = False
        if self._peers.cluster_id is None:
            self._peers.cluster_id = uuid_text(self._runtime.new_uuid())
        self._set_caught_up()
        self._on_elected()
