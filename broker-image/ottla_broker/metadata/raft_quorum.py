"""One broker's part in the quorum of the metadata log: implements `quorum.MetadataQuorum` by the
rules of `raft_rules`.

One loop does the work of the current role until the role, the epoch or the leader changes: it
leads, follows, requests votes or looks for a leader. Every change goes through
`RaftReplica.transition`, which stores the new state before the loop and other brokers see it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla_broker.log.disk import Disk
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata import raft_rules, snapshot_generator, voter_changes
from ottla_broker.metadata.candidate import Candidate
from ottla_broker.metadata.cluster_founding import founds_cluster
from ottla_broker.metadata.fetch_sources import FetchSources
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.leader_endpoints import LeaderEndpoints
from ottla_broker.metadata.leader_finder import LeaderFinder
from ottla_broker.metadata.leader_follower import LeaderFollower
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.leader_succession import LeaderSuccession
from ottla_broker.metadata.leader_term import LeaderTerm
from ottla_broker.metadata.log_fetcher import FetchRefused, MetadataLogFetcher
from ottla_broker.metadata.metadata_fetch import (
    CONSUMER_REPLICA_ID,
    LeaderAndEpoch,
    MetadataFetchRequest,
    MetadataFetchResponse,
)
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.observer_fetches import ObserverFetches
from ottla_broker.metadata.own_voter_entry import maintain_own_entry
from ottla_broker.metadata.partition_index import maintain_partition_index
from ottla_broker.metadata.quorum import QuorumDescription, ReplicaDescription
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.quorum_recovery import RecoveryOrder
from ottla_broker.metadata.quorum_settings import QuorumSettings
from ottla_broker.metadata.quorum_state import QuorumStateFile
from ottla_broker.metadata.raft_replica import RaftReplica
from ottla_broker.metadata.raft_rules import NO_LEADER, RaftState, Replica, Role, VoteRequest
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.metadata.voter_set import QuorumEndpoint, ReplicaKey, Voter
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS, ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

ASK_PAUSE_S = 0.1
DISK_RETRY_PAUSE_S = 0.5


class RaftQuorum:
    """`cluster_id` None: the log directory belongs to no cluster yet. `recovery`: the order that
    this start carries out. `on_elected` and `on_resigned` are called when this broker becomes the
    active controller and when it no longer is."""

    def __init__(
        self,
        me: Voter,
        partition_log: PartitionLog,
        image: MetadataImage,
        runtime: Runtime,
        disk: Disk,
        settings: QuorumSettings,
        *,
        cluster_id: str | None,
        recovery: RecoveryOrder | None = None,
        snapshot_intervals: snapshot_generator.SnapshotIntervals,
        on_commit: Callable[[MetadataDelta], None],
        on_elected: Callable[[], None],
        on_resigned: Callable[[], None],
        channels: ChannelBuilder = UNSECURED_CHANNELS,
    ) -> None:
        snapshots = SnapshotStore(partition_log.directory, disk)
        self.metadata_log = MetadataLog(partition_log, image, snapshots, runtime, on_commit)
        self._me = me
        self._image = image
        self._runtime = runtime
        self._settings = settings
        self._timeouts = settings.timeouts
        self._cluster_id = cluster_id
        self._recovery = recovery
        self._snapshot_intervals = snapshot_intervals
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._loop = asyncio.get_running_loop()
        self._file = QuorumStateFile(partition_log.directory, disk, runtime, me.key)
        self._replica = RaftReplica(me.key, self.metadata_log, self._file, self._timeouts, runtime, self._end_term)
        self._leader_endpoints = LeaderEndpoints(self.metadata_log.voters)
        self._fetcher = MetadataLogFetcher(
            self.metadata_log, me, runtime, self._replica.is_current_epoch, self._replica.hear_leader, channels
        )
        self._peers = QuorumPeers(
            me, settings.bootstrap_servers, self._fetcher.client_id, self._timeouts.election_s, cluster_id, channels
        )
        self._sources = FetchSources(me.key, self.metadata_log, settings.listener, self._loop.time)
        self._observer_fetches = ObserverFetches(me.key, self.metadata_log, self._replica, self._loop.time)
        self._leader_state: LeaderState | None = None
        self._writes_voters = False
        self._caught_up: asyncio.Future[None] = self._loop.create_future()
        self._is_stopping = False
        self._finder = LeaderFinder(self._peers, self.metadata_log, image, settings.listener, self._observe)
        self._candidate = Candidate(self._replica, self._peers, self.metadata_log.voters, self._finder, self._observe)
        self._succession = LeaderSuccession(me, self._peers, image, settings.listener, self._timeouts)

    # --- queries

    @property
    def _state(self) -> RaftState:
        return self._replica.state

    @property
    def cluster_id(self) -> str:
        """Raises COORDINATOR_NOT_AVAILABLE before this broker belongs to a cluster."""
        if self._cluster_id is None:
            raise KafkaError(ErrorCode.coordinator_not_available, "this broker belongs to no cluster yet")
        return self._cluster_id

    @property
    def leader_id(self) -> int:
        return NO_LEADER if self._state.doubts_leader else self._state.leader

    @property
    def epoch(self) -> int:
        return self._state.epoch

    def leader_endpoint(self) -> QuorumEndpoint | None:
        return self._leader_endpoints.find(self.epoch, self.leader_id)

    def current_leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.epoch, self.leader_id, self.leader_endpoint())

    def hears_majority(self, within_s: float) -> bool:
        leader = self._leader_state
        return leader is not None and leader.hears_majority(within_s)

    def describe(self) -> QuorumDescription:
        return self._led().describe(self._runtime.now_ms())

    def describe_replica(self) -> ReplicaDescription:
        state, log = self._state, self.metadata_log
        is_heard = state.role is Role.LEADER or state.hears_leader
        return ReplicaDescription(
            self._me.key,
            self._me.address,
            state.leader if is_heard else NO_LEADER,
            state.epoch,
            log.log_end,
            log.high_watermark,
            log.voters.latest,
            -1 if state.voted is None else state.voted[0],
        )

    def _led(self) -> LeaderState:
        if self._leader_state is None:
            raise KafkaError(ErrorCode.not_controller, f"broker {self.leader_id} leads the metadata log")
        return self._leader_state

    # --- requests

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        return await self._led().commit(records)

    async def handle_fetch(self, request: MetadataFetchRequest) -> MetadataFetchResponse:
        if None not in (request.cluster_id, self._cluster_id) and request.cluster_id != self._cluster_id:
            return MetadataFetchResponse(ErrorCode.inconsistent_cluster_id)
        if request.replica_id == CONSUMER_REPLICA_ID:
            return self.metadata_log.read_committed(request)
        if self._leader_state is not None:
            response = await self._leader_state.handle_fetch(request)
            if response.error is not ErrorCode.not_leader_or_follower:
                return response
        elif (served := await self._observer_fetches.handle_fetch(request)) is not None:
            return served
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower, leader=self.current_leader())

    def check_receiver(self, cluster_id: str | None, receiver: ReplicaKey | None) -> ErrorCode:
        """The error of a request between replicas that is for another cluster or another replica.
        `receiver`: the replica that the request is for; None for any."""
        if None not in (cluster_id, self._cluster_id) and cluster_id != self._cluster_id:
            return ErrorCode.inconsistent_cluster_id
        return ErrorCode.none if receiver in (None, self._me.key) else ErrorCode.invalid_voter_key

    async def handle_vote(self, request: VoteRequest) -> tuple[ErrorCode, bool]:
        """Returns the error and whether the vote is granted, once the vote is stored. Raises
        KAFKA_STORAGE_ERROR.
        """
        granted = False

        def answer(state: RaftState, me: Replica) -> RaftState:
            nonlocal granted
            state, granted = raft_rules.answer_vote(state, request, me)
            return state

        await self._replica.transition(answer)
        is_older = request.epoch < self._state.epoch
        return ErrorCode.fenced_leader_epoch if is_older and not granted else ErrorCode.none, granted

    async def handle_begin_quorum_epoch(self, leader: LeaderAndEpoch) -> None:
        state = self._state
        if state.hears_leader and (state.epoch, state.leader) == (leader.epoch, leader.leader):
            self._sources.prefer_leader()  # it misses this broker's fetches
        await self._observe(leader)

    async def handle_end_quorum_epoch(self, leader: LeaderAndEpoch, successors: tuple[ReplicaKey, ...]) -> None:
        def end(state: RaftState, me: Replica) -> RaftState:
            return raft_rules.end_quorum_epoch(state, leader.epoch, leader.leader, successors, me)

        if not self._is_stopping:
            await self._replica.transition(end)

    async def add_voter(self, voter: Voter, timeout_s: float) -> None:
        leader = self._led()
        if not leader.is_caught_up(voter.key, voter_changes.CAUGHT_UP_WITHIN_S):
            await self._peers.announce_leader(voter, self._me, leader.epoch)  # so that it fetches from this broker
        await voter_changes.add_voter(leader, voter, timeout_s)

    async def remove_voter(self, key: ReplicaKey, timeout_s: float) -> None:
        leader = self._led()
        await voter_changes.remove_voter(leader, key, timeout_s)
        if key == self._me.key:
            leader.end_term()

    async def update_voter(self, voter: Voter, timeout_s: float) -> None:
        await voter_changes.update_voter(self._led(), voter, timeout_s)

    # --- start and stop

    async def wait_until_caught_up(self) -> None:
        await self._caught_up

    async def run(self) -> None:
        """Raises KafkaError: INCONSISTENT_CLUSTER_ID, or the log's error when it fails."""
        background: list[asyncio.Task[None]] = []
        try:
            snapshot_generator.load_image(self.metadata_log)
            if await founds_cluster(self.metadata_log, self._file, self._settings, self._peers, self._recovery):
                logger.info("broker %d is the only voter of the metadata log", self._me.broker)
                self.metadata_log.voters.restart((self._me,))
                self._writes_voters = True
            self._replica.start()
            for work in (
                snapshot_generator.run_snapshot_generator(self.metadata_log, self._snapshot_intervals, self._runtime),
                maintain_partition_index(self._image, lambda: self._replica.view().is_voter),
            ):
                background.append(self._loop.create_task(work))
            while True:
                await self._run_role()
        except KafkaError as reason:
            if self._caught_up.done():
                raise
            self._caught_up.set_exception(reason)
        finally:
            for task in background:
                task.cancel()

    async def resign(self) -> None:
        was_stopping, self._is_stopping = self._is_stopping, True
        if not was_stopping and self._leader_state is not None:
            await self._succession.hand_over(self._leader_state)

    async def _observe(self, leader: LeaderAndEpoch) -> None:
        self._leader_endpoints.observe(leader)
        await self._replica.transition(
            lambda state, me: raft_rules.observe_epoch(state, leader.epoch, leader.leader, me)
        )

    def _end_term(self) -> None:
        if self._leader_state is not None:
            self._leader_state.end_term()

    # --- roles

    async def _run_role(self) -> None:
        """Works in the current role until the role, the epoch or the leader changes."""
        state = self._state
        activity = state.activity
        work = self._loop.create_task(self._work_as(state))
        try:
            while self._state.activity == activity:
                if work.done():
                    work.result()
                if self._replica.has_expired and not self._is_stopping:
                    await self._replica.transition(raft_rules.expire)
                else:
                    await self._replica.wait_for_change(work, may_expire=not self._is_stopping)
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
        return reason.code is not ErrorCode.kafka_storage_error or self.metadata_log.partition_log.failure is not None

    async def _work_as(self, state: RaftState) -> None:
        match state.role:
            case Role.LEADER:
                await self._lead(state.epoch)
            case Role.PROSPECTIVE | Role.CANDIDATE:
                await self._candidate.request_votes(state)
            case Role.FOLLOWER:
                while (
                    endpoint := self._leader_endpoints.find(self.epoch, state.leader)
                ) is None or self._peers.cluster_id is None:
                    await self._ask_for_leader()
                await self._follow(state, endpoint)
            case _:
                while True:
                    await self._ask_for_leader()

    async def _follow(self, state: RaftState, endpoint: QuorumEndpoint) -> None:
        # Voters fetch more often than their leader's timeout for them. An observer can wait for a
        # voter in vain, and then for the leader, within its own timeout.
        fetch_s = self._timeouts.fetch_s
        follower = LeaderFollower(
            self._fetcher,
            self._sources,
            state.leader,
            endpoint,
            state.epoch,
            int(fetch_s * 1000 / (10 if self._replica.view().is_voter else 3)),
            fetch_s / 4,
            self._on_fetch_response,
            self._replica.expire_soon,
            self._observe,
        )
        self._fetcher.cluster_id = self._peers.cluster_id
        entry = self._loop.create_task(maintain_own_entry(self.metadata_log.voters, self._peers, endpoint, state.epoch))
        try:
            await follower.run()
        except FetchRefused:  # another cluster's broker has the address now
            if not self._caught_up.done():
                await self._peers.find_leader(endpoint)  # raises, with the names of both clusters
            self._replica.expire_soon()
        finally:
            entry.cancel()
            self._observer_fetches.notify()

    def _on_fetch_response(self, response: MetadataFetchResponse) -> None:
        self._observer_fetches.notify_commits()
        if response.high_watermark >= 0 and self._image.end_offset >= response.high_watermark:
            self._set_caught_up()

    def _set_caught_up(self) -> None:
        if not self._caught_up.done():
            self._cluster_id = self._peers.cluster_id
            self._sources.is_caught_up = True
            self._caught_up.set_result(None)

    async def _ask_for_leader(self) -> None:
        """Raises INCONSISTENT_CLUSTER_ID when no other broker belongs to this broker's cluster,
        before this one has served.
        """
        only_strangers = await self._finder.ask(self._cluster_id)
        if only_strangers is not None and not self._caught_up.done():
            raise only_strangers
        await asyncio.sleep(ASK_PAUSE_S)

    # --- leading

    async def _lead(self, epoch: int) -> None:
        """Leads until there is a newer epoch, no majority fetches, or this broker's log fails."""
        over: asyncio.Future[None] = self._loop.create_future()
        leader = LeaderState(epoch, self._me, self.metadata_log, self._loop.time, lambda: over.set_result(None))
        term = LeaderTerm(
            leader,
            self.metadata_log,
            self._peers,
            self._timeouts,
            self._settings.listener,
            self._settings.max_voters,
            self._writes_voters,
        )
        self._leader_state = leader
        work = self._loop.create_task(term.run(self._on_established))
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            leader.end_term()
            self._leader_state = None
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if leader.is_established:
                self._on_resigned()
            logger.info("broker %d is no longer the leader of the metadata log", self._me.broker)
        is_removed = leader.is_established and not leader.is_voter
        if leader.failure is not None or (is_removed and not self._is_stopping):
            await self._succession.end_epoch(leader)
        if leader.failure is not None:
            if self._is_fatal(leader.failure):
                raise leader.failure
            logger.warning("broker %d cannot lead the metadata log: %s", self._me.broker, leader.failure)
        await self._replica.transition(lambda state, me: raft_rules.resign(state) if state.epoch == epoch else state)

    def _on_established(self) -> None:
        self._writes_voters = False
        if self._peers.cluster_id is None:
            self._peers.cluster_id = uuid_text(self._runtime.new_uuid())
        self._set_caught_up()
        self._on_elected()
