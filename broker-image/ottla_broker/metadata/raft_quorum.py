"""One broker's part in the quorum of the metadata log: what the rest of the broker, other brokers
and administrators ask of it. `role_loop` does the work of its role, by KRaft's rules
(`raft_rules`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla_broker.log.disk import Disk
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata import raft_rules, snapshot_generator, voter_changes
from ottla_broker.metadata.cluster_founding import founds_cluster
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.log_fetcher import MetadataLogFetcher
from ottla_broker.metadata.metadata_fetch import (
    CONSUMER_REPLICA_ID,
    LeaderAndEpoch,
    MetadataFetchRequest,
    MetadataFetchResponse,
)
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.partition_index import maintain_partition_index
from ottla_broker.metadata.quorum import QuorumDescription, ReplicaDescription
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.quorum_recovery import RecoveryOrder
from ottla_broker.metadata.quorum_settings import QuorumSettings
from ottla_broker.metadata.quorum_state import QuorumStateFile
from ottla_broker.metadata.raft_replica import RaftReplica
from ottla_broker.metadata.raft_rules import RaftState, Replica, Role, VoteRequest
from ottla_broker.metadata.records import NO_LEADER, MetadataRecord
from ottla_broker.metadata.role_loop import RoleLoop
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.metadata.voter_set import QuorumEndpoint, ReplicaKey, Voter
from ottla_broker.runtime import Runtime
from ottla_broker.wire.channel_builder import ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class RaftQuorum:
    """`cluster_id` None: the log directory belongs to no cluster yet. `recovery`: the order that
    this start carries out. `on_elected` and `on_resigned` are called when this broker becomes the
    active controller and when it no longer is. `channels`: for connections to other brokers."""

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
        recovery: RecoveryOrder | None,
        snapshot_intervals: snapshot_generator.SnapshotIntervals,
        on_commit: Callable[[MetadataDelta], None],
        on_elected: Callable[[], None],
        on_resigned: Callable[[], None],
        channels: ChannelBuilder,
    ) -> None:
        snapshots = SnapshotStore(partition_log.directory, disk)
        self.metadata_log = MetadataLog(partition_log, image, snapshots, runtime, on_commit)
        self._me = me
        self._image = image
        self._runtime = runtime
        self._settings = settings
        self._recovery = recovery
        self._snapshot_intervals = snapshot_intervals
        self._file = QuorumStateFile(partition_log.directory, disk, runtime, me.key)
        self._replica = RaftReplica(
            me.key, self.metadata_log, self._file, settings.timeouts, runtime, lambda: self._roles.end_term()
        )
        fetcher = MetadataLogFetcher(
            self.metadata_log, me, runtime, self._replica.is_current_epoch, self._replica.hear_leader, channels
        )
        self._peers = QuorumPeers(
            me, settings.bootstrap_servers, fetcher.client_id, settings.timeouts.election_s, cluster_id, channels
        )
        self._roles = RoleLoop(
            me, self.metadata_log, self._replica, fetcher, self._peers, settings, runtime, on_elected, on_resigned
        )

    # --- queries

    @property
    def _state(self) -> RaftState:
        return self._replica.state

    @property
    def cluster_id(self) -> str:
        """Raises COORDINATOR_NOT_AVAILABLE before this broker belongs to a cluster."""
        if self._roles.cluster_id is None:
            raise KafkaError(ErrorCode.coordinator_not_available, "this broker belongs to no cluster yet")
        return self._roles.cluster_id

    @property
    def leader_id(self) -> int:
        """The broker that leads the metadata log, as far as this one knows; −1 without a leader."""
        return NO_LEADER if self._state.doubts_leader else self._state.leader

    @property
    def epoch(self) -> int:
        """The newest epoch that this broker knows; 0 before the first."""
        return self._state.epoch

    def leader_endpoint(self) -> QuorumEndpoint | None:
        return self._roles.leader_endpoints.find(self.epoch, self.leader_id)

    def current_leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.epoch, self.leader_id, self.leader_endpoint())

    def hears_majority(self, within_s: float) -> bool:
        """See `CommitLog`."""
        leader = self._roles.leader_state
        return leader is not None and leader.hears_majority(within_s)

    def describe(self) -> QuorumDescription:
        """Raises NOT_CONTROLLER unless this broker leads."""
        return self._require_leader().describe(self._runtime.now_ms())

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
            -1 if state.voted is None else state.voted.broker,
        )

    def _require_leader(self) -> LeaderState:
        """Raises NOT_CONTROLLER unless this broker leads."""
        if self._roles.leader_state is None:
            raise KafkaError(ErrorCode.not_controller, f"the metadata log is led by broker {self.leader_id} (-1: none)")
        return self._roles.leader_state

    # --- requests

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """See `CommitLog`."""
        return await self._require_leader().commit(records)

    async def handle_fetch(self, request: MetadataFetchRequest) -> MetadataFetchResponse:
        """The response to a fetch. A consumer's is returned at once; another replica's may wait for
        records.
        """
        if self._is_of_another_cluster(request.cluster_id):
            return MetadataFetchResponse(ErrorCode.inconsistent_cluster_id)
        if request.replica_id == CONSUMER_REPLICA_ID:
            return self.metadata_log.read_committed(request)
        if self._roles.leader_state is not None:
            response = await self._roles.leader_state.handle_fetch(request)
            if response.error is not ErrorCode.not_leader_or_follower:
                return response
        elif (served := await self._roles.observer_fetches.handle_fetch(request)) is not None:
            return served
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower, leader=self.current_leader())

    def check_receiver(self, cluster_id: str | None, receiver: ReplicaKey | None) -> ErrorCode:
        """The error of a request between replicas that is for another cluster or another replica,
        else `none`. `receiver`: the replica that the request is for; None for any."""
        if self._is_of_another_cluster(cluster_id):
            return ErrorCode.inconsistent_cluster_id
        return ErrorCode.none if receiver in (None, self._me.key) else ErrorCode.invalid_voter_key

    def _is_of_another_cluster(self, cluster_id: str | None) -> bool:
        """False while the sender or this broker knows no cluster id."""
        own = self._roles.cluster_id
        return None not in (cluster_id, own) and cluster_id != own

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
        """Called when a broker announces that it leads the epoch. Raises KAFKA_STORAGE_ERROR."""
        state = self._state
        if state.hears_leader and (state.epoch, state.leader) == (leader.epoch, leader.leader):
            self._roles.sources.prefer_leader()  # it has not received this broker's fetches
        await self._roles.observe(leader)

    async def handle_end_quorum_epoch(self, leader: LeaderAndEpoch, successors: tuple[ReplicaKey, ...]) -> None:
        """Called when the leader requests the election of another one, preferably the first of
        `successors`. Raises KAFKA_STORAGE_ERROR.
        """

        def end(state: RaftState, me: Replica) -> RaftState:
            return raft_rules.end_quorum_epoch(state, leader.epoch, leader.leader, successors, me)

        if not self._roles.is_stopping:
            await self._replica.transition(end)

    async def add_voter(self, voter: Voter, timeout_s: float) -> None:
        """See `voter_changes.add_voter`."""
        leader = self._require_leader()
        if not leader.is_caught_up(voter.key, voter_changes.CAUGHT_UP_WITHIN_S):
            await self._peers.announce_leader(voter, self._me, leader.epoch)  # so that it fetches from this broker
        await voter_changes.add_voter(leader, voter, timeout_s)

    async def remove_voter(self, key: ReplicaKey, timeout_s: float) -> None:
        """See `voter_changes.remove_voter`. The leader resigns if it is removed itself."""
        leader = self._require_leader()
        await voter_changes.remove_voter(leader, key, timeout_s)
        if key == self._me.key:
            leader.end_term()

    async def update_voter(self, voter: Voter, timeout_s: float) -> None:
        """See `voter_changes.update_voter`."""
        await voter_changes.update_voter(self._require_leader(), voter, timeout_s)

    # --- start and stop

    async def wait_until_caught_up(self) -> None:
        """Returns when the image has been as current as the leader's for the first time, or this
        broker has led. Raises the error of a `run` that has ended.
        """
        await self._roles.caught_up

    async def run(self) -> None:
        """Takes part in the quorum until cancelled. Raises KafkaError: INCONSISTENT_CLUSTER_ID, or
        the log's error when it fails. Before this broker has caught up, `wait_until_caught_up`
        raises the error instead.
        """
        background: list[asyncio.Task[None]] = []
        try:
            snapshot_generator.load_image(self.metadata_log)
            if await founds_cluster(self.metadata_log, self._file, self._settings, self._peers, self._recovery):
                logger.info("broker %d is the only voter of the metadata log", self._me.broker)
                self.metadata_log.voters.restart((self._me,))
                self._roles.writes_voters = True
            self._replica.start()
            for work in (
                snapshot_generator.run_snapshot_generator(self.metadata_log, self._snapshot_intervals, self._runtime),
                maintain_partition_index(self._image.index_partitions, lambda: self._replica.view().is_voter),
            ):
                background.append(asyncio.get_running_loop().create_task(work))
            await self._roles.run()
        except KafkaError as reason:
            if self._roles.caught_up.done():
                raise
            self._roles.caught_up.set_exception(reason)
        finally:
            for task in background:
                task.cancel()

    async def resign(self) -> None:
        """Called before a stop. Hands leadership over to another voter, and returns when that leads
        or after a timeout.
        """
        await self._roles.resign()
