"""A quorum whose leader is elected through the register: implements `quorum.MetadataQuorum`.

One loop takes the newest value of the register that this broker knows, and until there is a newer one it does one of
three things. It leads, if this process wrote the value. It follows the leader. Or, if the lead is vacant and this broker
is a voter, it tries to write the next epoch. The lead is vacant when the leader's port refuses connections, when the
leader has resigned, or when it does not answer while the register does not change.

None of these conditions matters for safety: an epoch is assigned by compare-and-swap and stored before it is followed
(`quorum_state`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from ottla_broker.log.disk import Disk
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata import snapshot_generator
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.leader_term import LeaderTerm, announce_leader
from ottla_broker.metadata.log_fetcher import FollowerState, MetadataLogFetcher
from ottla_broker.metadata.metadata_fetch import CONSUMER_REPLICA_ID, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum import QuorumDescription
from ottla_broker.metadata.quorum_rules import Voter
from ottla_broker.metadata.quorum_state import QuorumState
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.register import NO_LEADER, Register, RegisterError, RegisterValue, initial_value
from ottla_broker.metadata.register_election import (
    Resignation,
    can_reach_election_quorum,
    check_cluster_id,
    check_may_create_cluster,
)
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
DISK_RETRY_PAUSE_S = 0.5
MAX_FAILED_TERMS = 5


class RegisterQuorum:
    """`listener`: the name of the inter-broker listener. `on_elected` and `on_resigned` are called when this broker
    becomes the active controller and when it no longer is."""

    def __init__(
        self,
        me: Voter,
        partition_log: PartitionLog,
        image: MetadataImage,
        register: Register,
        runtime: Runtime,
        disk: Disk,
        *,
        cluster_id: str | None,
        listener: str,
        lease_ms: int,
        snapshot_intervals: snapshot_generator.SnapshotIntervals,
        on_commit: Callable[[MetadataDelta], None],
        on_elected: Callable[[], None],
        on_resigned: Callable[[], None],
    ) -> None:
        snapshots = SnapshotStore(partition_log.directory, disk)
        self.metadata_log = MetadataLog(partition_log, image, snapshots, runtime, on_commit)
        self._me = me
        self._image = image
        self._runtime = runtime
        self._lease_ms = lease_ms
        self._listener = listener
        self._snapshot_intervals = snapshot_intervals
        self._cluster_id = cluster_id
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._register_view = RegisterView(register, self._changed.set)
        self._quorum_state = QuorumState(partition_log.directory, disk, runtime, self._changed.set)
        self._fetcher = MetadataLogFetcher(self.metadata_log, me, runtime)
        self._resignation = Resignation(me, image, self._register_view, runtime, self._latest_value)
        self._leader_state: LeaderState | None = None
        self._acquired_value: RegisterValue | None = None  # written by this process, which does not lead by it yet
        self._caught_up: asyncio.Future[None] = self._loop.create_future()
        self._failed_terms = 0  # consecutive epochs of this broker in which it could not lead
        self._next_attempt_s = 0.0  # event loop time
        self._is_stopping = False
        self._notification_task: asyncio.Task[None] | None = None

    # --- queries

    @property
    def cluster_id(self) -> str:
        """COORDINATOR_NOT_AVAILABLE before the register was read."""
        value = self._latest_value()
        if value is None:
            raise KafkaError(ErrorCode.coordinator_not_available, "the register has not been read yet")
        return value.cluster_id

    @property
    def leader_id(self) -> int:
        value = self._latest_value()
        return NO_LEADER if value is None else value.leader

    @property
    def epoch(self) -> int:
        value = self._latest_value()
        return -1 if value is None else value.epoch

    def leader_endpoint(self) -> tuple[str, int] | None:
        value = self._latest_value()
        leader = None if value is None else value.voter(value.leader)
        return None if leader is None else leader.endpoint

    def hears_majority(self, within_s: float) -> bool:
        return self._leader_state is not None and self._leader_state.hears_majority(within_s)

    def describe(self) -> QuorumDescription:
        if self._leader_state is None:
            raise KafkaError(ErrorCode.not_controller, f"broker {self.leader_id} leads the metadata log")
        return self._leader_state.describe(self._runtime.now_ms())

    # --- requests

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        if self._leader_state is None:
            raise KafkaError(ErrorCode.not_controller, "this broker does not lead the metadata log")
        return await self._leader_state.commit(records)

    async def handle_fetch(self, request: MetadataFetchRequest) -> MetadataFetchResponse:
        if None not in (request.cluster_id, self._cluster_id) and request.cluster_id != self._cluster_id:
            return MetadataFetchResponse(ErrorCode.inconsistent_cluster_id)
        if request.replica_id == CONSUMER_REPLICA_ID:
            return self.metadata_log.read_committed(request)
        if self._leader_state is not None:
            return await self._leader_state.handle_fetch(request)
        stored = self._quorum_state
        if (request.leader_epoch, request.replica_id) == (stored.epoch, stored.leader_id):
            return self.metadata_log.read_for_new_leader(request)
        if request.leader_epoch > stored.epoch:
            return MetadataFetchResponse(ErrorCode.unknown_leader_epoch)
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower)

    async def handle_begin_quorum_epoch(self, leader: int, epoch: int, address: str) -> None:
        """The announcement is as good as the register's change, from which the sender has the epoch."""
        value = self._latest_value()
        if value is not None and epoch > value.epoch:
            await self._quorum_state.store(value.with_announced_leader(leader, epoch, address))

    # --- start and stop

    async def wait_until_caught_up(self) -> None:
        await self._caught_up

    async def resign(self) -> None:
        was_stopping, self._is_stopping = self._is_stopping, True
        if not was_stopping:
            await self._resignation.hand_over_leadership(self._leader_state)

    async def run(self) -> None:
        """KafkaError INCONSISTENT_CLUSTER_ID, or the log's when it fails; RegisterError when the register is unavailable
        and this broker has never read it."""
        try:
            snapshot_generator.load_image(self.metadata_log)
            await self._read_initial_value()
            generator = snapshot_generator.run_snapshot_generator(
                self.metadata_log, self._snapshot_intervals, self._runtime
            )
            tasks = [self._loop.create_task(self._register_view.watch()), self._loop.create_task(generator)]
            try:
                while True:
                    await self._run_epoch()
            finally:
                for task in (*tasks, self._notification_task):
                    if task is not None:
                        task.cancel()
        except (KafkaError, RegisterError) as reason:
            if self._caught_up.done():
                raise
            self._caught_up.set_exception(reason)

    async def _read_initial_value(self) -> None:
        """Reads the register; writes the first value if it is empty. While it is unavailable, the stored value serves."""
        try:
            seen = await self._register_view.read()
        except RegisterError as reason:
            if self._quorum_state.value is None:
                raise
            logger.warning("%s; using the value stored on this broker", reason)
            self._join_cluster(self._quorum_state.value)
            return
        while seen.value is None:
            check_may_create_cluster(self._quorum_state.value, self._me)
            if (value := await self._register_view.update(self._initial_value)) is not None:
                self._acquired_value = value
            seen = self._register_view.last_seen or await self._register_view.read()
        self._join_cluster(seen.value)

    def _initial_value(self, value: RegisterValue | None) -> RegisterValue | None:
        if value is not None:
            return None
        cluster_id = self._cluster_id or uuid_text(self._runtime.new_uuid())
        epoch = max(self.metadata_log.log_end.epoch, self._quorum_state.epoch, 0) + 1
        return initial_value(cluster_id, self._me, self._runtime.now_ms(), lease_ms=self._lease_ms, epoch=epoch)

    def _join_cluster(self, value: RegisterValue) -> None:
        check_cluster_id(self._cluster_id, value)
        self._cluster_id = self._fetcher.cluster_id = value.cluster_id

    def _latest_value(self) -> RegisterValue | None:
        """The value with the larger epoch, of the register's and the stored one."""
        seen, stored = self._register_view.value, self._quorum_state.value
        if seen is None or (stored is not None and stored.epoch > seen.epoch):
            return stored
        return seen

    # --- one epoch: lead, follow or elect

    async def _run_epoch(self) -> None:
        value = self._latest_value()
        if value is None:
            await self._wait_for_change(RETRY_PAUSE_S)
        elif self._acquired_value is not None and self._acquired_value.epoch == value.epoch:
            acquired, self._acquired_value = self._acquired_value, None
            if await self._store_epoch(acquired):
                await self._lead(acquired)
        elif value.leader != self._me.broker:
            if await self._store_epoch(value):
                await self._follow(value)
        else:  # written by an earlier process, or with an unknown outcome, or by a term that failed: nobody leads by it
            if self._loop.time() >= self._next_attempt_s:
                await self._try_become_leader(value)
            if self._acquired_value is None:
                await self._wait_for_change(RETRY_PAUSE_S)

    async def _store_epoch(self, value: RegisterValue) -> bool:
        """False when this broker may not take part in the value's epoch, or its disk cannot store it now."""
        try:
            return await self._quorum_state.store(value)
        except KafkaError as reason:
            logger.warning("cannot take part in epoch %d of the metadata log: %s", value.epoch, reason)
            await asyncio.sleep(DISK_RETRY_PAUSE_S)
            return False

    async def _follow(self, value: RegisterValue) -> None:
        """Copies the log from the leader until there is a newer epoch. Tries to become leader while the lead is vacant."""
        # Voters fetch more often than their leader's timeout for them.
        max_wait_ms = self._lease_ms // (10 if value.has_voter(self._me) else 3)
        leader = value.voter(value.leader) or Voter(value.leader, UUID(int=0))
        follower = FollowerState(
            self._fetcher, leader, value.epoch, max_wait_ms, self._changed.set, self._on_fetch_response
        )
        fetching = self._loop.create_task(follower.run())
        try:
            while True:
                latest = self._latest_value()
                assert latest is not None
                if latest.epoch > value.epoch:
                    if not follower.is_leader_down:
                        self._notify_former_leader(leader, latest)
                    return
                if fetching.done():
                    fetching.result()
                vacant_at_s = self._vacant_at_s(latest, follower)
                if vacant_at_s <= self._loop.time():
                    await self._try_become_leader(latest, follower)
                    vacant_at_s = self._loop.time() + RETRY_PAUSE_S
                    latest = self._latest_value()
                    if latest is not None and latest.epoch > value.epoch:
                        return
                await self._wait_for_change_or(fetching, vacant_at_s - self._loop.time())
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    def _notify_former_leader(self, former: Voter, latest: RegisterValue) -> None:
        """The former leader may reach neither its successor nor the register, and would believe to lead for a while
        (rule 6). One attempt."""
        leader = latest.voter(latest.leader)
        if leader is None or leader.broker in (former.broker, self._me.broker) or not former.address:
            return
        if self._notification_task is not None:
            self._notification_task.cancel()
        self._notification_task = self._loop.create_task(
            announce_leader(former, self._fetcher.client_id, leader, latest.epoch)
        )

    def _vacant_at_s(self, value: RegisterValue, follower: FollowerState) -> float:
        """Event loop time from which the lead is vacant, if nothing changes."""
        if follower.is_leader_down or value.holder == NO_LEADER:
            return self._next_attempt_s
        unchanged_since_s = max(follower.last_response_s, self._register_view.unchanged_since_s)
        return max(unchanged_since_s + self._lease_ms / 1000, self._next_attempt_s)

    def _on_fetch_response(self, response: MetadataFetchResponse) -> None:
        if response.high_watermark >= 0:
            self._failed_terms = 0
            if self._image.end_offset >= response.high_watermark:
                self._set_caught_up()

    def _set_caught_up(self) -> None:
        if not self._caught_up.done():
            self._caught_up.set_result(None)

    async def _try_become_leader(self, vacant: RegisterValue, follower: FollowerState | None = None) -> None:
        """Writes the next epoch with this broker as leader; `_acquired_value` if that succeeded."""
        if not vacant.has_voter(self._me):
            if all(voter.broker == self._me.broker for voter in vacant.isr):
                vacant.with_new_leader(self._me, 0, lease_ms=0)  # raises: no broker but this one could ever lead
            return
        if self._is_stopping or not await can_reach_election_quorum(vacant, self._me, self._fetcher.client_id):
            return

        def take_lead(value: RegisterValue | None) -> RegisterValue | None:
            if value is None or value.epoch != vacant.epoch or not value.has_voter(self._me):
                return None
            if follower is not None and self._vacant_at_s(value, follower) > self._loop.time():
                return None
            return value.with_new_leader(self._me, self._runtime.now_ms(), lease_ms=self._lease_ms)

        try:
            self._acquired_value = await self._register_view.update(take_lead)
        except RegisterError as reason:
            logger.warning("cannot become leader of the metadata log: %s", reason)

    async def _lead(self, value: RegisterValue) -> None:
        """Until there is a newer epoch, or this broker's log fails."""
        leader = LeaderState(value.epoch, value.isr, self._me, self.metadata_log, self._loop.time, self._changed.set)
        term = LeaderTerm(
            value,
            leader,
            self._register_view,
            self._store_epoch,
            self._fetcher,
            self._runtime,
            self._lease_ms,
            self._listener,
        )
        self._leader_state = leader
        work = self._loop.create_task(term.run(self._on_established))
        try:
            while self.epoch == value.epoch and not leader.is_over:
                await self._wait_for_change_or(work)
                if work.done():
                    work.result()
        finally:
            leader.end_term()
            self._leader_state = None
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if leader.is_established:
                self._on_resigned()
        await self._finish_term(leader)
        logger.info("broker %d is no longer the leader of the metadata log", self._me.broker)

    async def _finish_term(self, leader: LeaderState) -> None:
        """After a failure the lead is left to others. Raises the failure of a log that cannot go on as follower either."""
        if leader.failure is not None:
            await self._resignation.resign_leadership(leader.epoch)
            is_disk_full = (
                leader.failure.code is ErrorCode.kafka_storage_error and self.metadata_log.partition_log.failure is None
            )
            if not is_disk_full:
                raise leader.failure
            logger.warning("broker %d cannot lead the metadata log: %s", self._me.broker, leader.failure)
        # A broker that the others do not reach must not disturb them by one election after the other.
        if leader.failure is not None or not leader.is_established:
            self._failed_terms = min(self._failed_terms + 1, MAX_FAILED_TERMS)
            self._next_attempt_s = self._loop.time() + self._failed_terms * self._lease_ms / 1000

    def _on_established(self) -> None:
        self._failed_terms = 0
        self._on_elected()
        self._set_caught_up()

    # --- waiting

    async def _wait_for_change(self, timeout_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _wait_for_change_or(self, work: "asyncio.Task[None]", timeout_s: float | None = None) -> None:
        """Returns when the known value changed, when `work` is done, or at the timeout."""
        self._changed.clear()
        change = self._loop.create_task(self._changed.wait())
        try:
            await asyncio.wait((work, change), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
