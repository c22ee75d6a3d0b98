"""A broker's part in keeping the metadata log: following its leader, or being it.

One loop looks at the newest value of the register that this broker has heard of, and does one of three things until there is a newer one:
leads (the value was written by this life of this broker), follows, or tries to take over where the lead is vacant and this broker is a member.
The lead is vacant when the leader's port refuses connections, when it has resigned, and when it is silent while the register does not change.
None of that is safety's concern: an epoch is given by compare-and-swap, and promised before it is followed (`promise`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla_broker.log.disk import Disk
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata import snapshot_generator
from ottla_broker.metadata.founding import check_cluster_id, check_may_create_cluster
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.leader_term import LeaderTerm
from ottla_broker.metadata.log_fetcher import FollowerState, MetadataLogFetcher, parse_host_and_port
from ottla_broker.metadata.metadata_fetch import CONSUMER_REPLICA_ID, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_state import QuorumState
from ottla_broker.metadata.reaching import can_reach_election_quorum
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.register import Register, RegisterError, RegisterValue, Voter
from ottla_broker.metadata.register.steps import (
    NO_LEADER,
    address_of,
    initial_value,
    is_voter,
    with_announced_leader,
    with_new_leader,
)
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.metadata.stepping_down import Resignation
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
DISK_RETRY_PAUSE_S = 0.5
MAX_FAILED_TERMS = 5


class RegisterQuorum:
    """`listener`: the name of the one that brokers use among themselves. `elected` and `deposed` are called when this broker has become the active
    controller, and when it is none any more."""

    def __init__(
        self,
        me: Voter,
        metadata_log: PartitionLog,
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
        self.me = me
        self.log = MetadataLog(metadata_log, image, SnapshotStore(metadata_log.directory, disk), runtime, on_commit)
        self.leader_state: LeaderState | None = None
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
        self._quorum_state = QuorumState(metadata_log.directory, disk, runtime, self._changed.set)
        self._fetcher = MetadataLogFetcher(self.log, me.broker, me.directory, runtime)
        self._stepping_down = Resignation(me, image, self._register_view, runtime, self._latest_value)
        self._acquired_value: RegisterValue | None = None  # what this life wrote to the register and has not led yet
        self._caught_up_future: asyncio.Future[None] = self._loop.create_future()
        self._failed_terms = 0  # epochs in a row that were this broker's and in which it could not lead …
        self._next_attempt_s = 0.0  # … and when it may try again, by the loop's clock
        self._is_stopping = False
        self._notification_task: asyncio.Task[None] | None = None

    # --- what the broker asks

    @property
    def value(self) -> RegisterValue:
        """The newest value heard of. KafkaError COORDINATOR_NOT_AVAILABLE before any was."""
        known = self._latest_value()
        if known is None:
            raise KafkaError(ErrorCode.coordinator_not_available, "nothing is known of the register yet")
        return known

    @property
    def cluster_id(self) -> str:
        return self.value.cluster_id

    @property
    def leader_id(self) -> int:
        """The broker that leads the metadata log, as far as this one knows; −1: nobody."""
        known = self._latest_value()
        return NO_LEADER if known is None else known.leader

    @property
    def epoch(self) -> int:
        known = self._latest_value()
        return -1 if known is None else known.epoch

    @property
    def is_leader(self) -> bool:
        """Whether this broker is the active controller."""
        return self.leader_state is not None and self.leader_state.is_established and not self.leader_state.is_over

    def hears_majority(self, within_s: float) -> bool:
        """Whether this broker leads, and a majority of the members has asked for something lately."""
        return self.leader_state is not None and self.leader_state.hears_majority(within_s)

    def leader_address(self) -> tuple[str, int] | None:
        known = self._latest_value()
        address = "" if known is None else address_of(known, known.leader)
        return parse_host_and_port(address) if address else None

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """All of `records` or none (one batch), in every later leader's log when this returns. NOT_CONTROLLER: this broker does not lead, or
        does not any more, and then the records may or may not come to be committed. KAFKA_STORAGE_ERROR."""
        if self.leader_state is None:
            raise KafkaError(ErrorCode.not_controller, "this broker does not lead the metadata log")
        return await self.leader_state.commit(records)

    async def handle_fetch(self, ask: MetadataFetchRequest) -> MetadataFetchResponse:
        """What a broker or a consumer that fetches the metadata log is told."""
        if None not in (ask.cluster_id, self._cluster_id) and ask.cluster_id != self._cluster_id:
            return MetadataFetchResponse(ErrorCode.inconsistent_cluster_id)
        if ask.replica_id == CONSUMER_REPLICA_ID:
            return self.log.read_committed(ask)
        if self.leader_state is not None:
            return await self.leader_state.handle_fetch(ask)
        if ask.leader_epoch == self._quorum_state.epoch and ask.replica_id == self._quorum_state.leader_id:
            return self.log.read_for_new_leader(ask)
        if ask.leader_epoch > self._quorum_state.epoch:
            return MetadataFetchResponse(ErrorCode.unknown_leader_epoch)
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower)

    async def handle_begin_quorum_epoch(self, leader: int, epoch: int, address: str) -> None:
        """A broker says that it leads the metadata log in `epoch`: its word is as good as the register's, which gave it the epoch."""
        known = self._latest_value()
        if known is None or epoch <= known.epoch:
            return
        await self._quorum_state.store(with_announced_leader(known, leader, epoch, address))

    # --- its life

    async def wait_until_caught_up(self) -> None:
        """Returns when the image is as the leader's, or this broker leads. Raises what `run` does before that."""
        await self._caught_up_future

    async def resign(self) -> None:
        """Before a stop: a leader that others can succeed says so, and leads on until one of them does, or none is left to do it."""
        stopped_before, self._is_stopping = self._is_stopping, True
        if stopped_before:
            return
        await self._stepping_down.hand_over_leadership(self.leader_state)

    async def run(self) -> None:
        """Until cancelled. KafkaError INCONSISTENT_CLUSTER_ID, or what the disk says when the log fails; RegisterError when the register is away
        and this broker has never seen it."""
        try:
            snapshot_generator.load_image(self.log)
            await self._read_initial_value()
            beside = [
                self._loop.create_task(self._register_view.watch()),
                self._loop.create_task(
                    snapshot_generator.run_snapshot_generator(self.log, self._snapshot_intervals, self._runtime)
                ),
            ]
            try:
                while True:
                    await self._run_epoch()
            finally:
                for task in (*beside, self._notification_task):
                    if task is not None:
                        task.cancel()
        except (KafkaError, RegisterError) as reason:
            if self._caught_up_future.done():
                raise
            self._caught_up_future.set_exception(reason)

    async def _read_initial_value(self) -> None:
        """The register, or what is remembered of it while it is away; its first value where there is none."""
        try:
            seen = await self._register_view.read()
        except RegisterError as reason:
            if self._quorum_state.value is None:
                raise
            logger.warning("%s; what this broker remembers of it has to do", reason)
            self._join_cluster(self._quorum_state.value)
            return
        while seen.value is None:
            check_may_create_cluster(self._quorum_state.value, self.me)
            if (value := await self._register_view.update(self._initial_value)) is not None:
                self._acquired_value = value
            seen = (
                await self._register_view.read()
                if self._register_view.last_seen is None
                else self._register_view.last_seen
            )
        self._join_cluster(seen.value)

    def _initial_value(self, found: RegisterValue | None) -> RegisterValue | None:
        if found is not None:
            return None
        cluster_id = self._cluster_id or uuid_text(self._runtime.new_uuid())
        epoch = max(self.log.log_end.epoch, self._quorum_state.epoch, 0) + 1
        return initial_value(cluster_id, self.me, self._runtime.now_ms(), lease_ms=self._lease_ms, epoch=epoch)

    def _join_cluster(self, value: RegisterValue) -> None:
        check_cluster_id(self._cluster_id, value)
        self._cluster_id = self._fetcher.cluster_id = value.cluster_id

    def _latest_value(self) -> RegisterValue | None:
        """Of what the register said and what was promised, whichever has the larger epoch."""
        seen, promised = self._register_view.value, self._quorum_state.value
        if seen is None or (promised is not None and promised.epoch > seen.epoch):
            return promised
        return seen

    # --- one turn: lead, follow or take over

    async def _run_epoch(self) -> None:
        value = self._latest_value()
        if value is None:
            await self._wait_for_change(RETRY_PAUSE_S)
        elif self._acquired_value is not None and self._acquired_value.epoch == value.epoch:
            won, self._acquired_value = self._acquired_value, None
            if await self._store_epoch(won):
                await self._lead(won)
        elif value.leader != self.me.broker:
            if await self._store_epoch(value):
                await self._follow(value)
        else:  # an earlier life of this broker, or a write whose end was not known, or one that could not lead: none of them does
            if self._loop.time() >= self._next_attempt_s:
                await self._try_become_leader(value)
            if self._acquired_value is None:
                await self._wait_for_change(RETRY_PAUSE_S)

    async def _store_epoch(self, value: RegisterValue) -> bool:
        """Whether this broker may go along with the value's epoch. On a disk that takes nothing now it goes along with nobody until it does."""
        try:
            return await self._quorum_state.store(value)
        except KafkaError as reason:
            logger.warning("epoch %d of the metadata log is not joined yet: %s", value.epoch, reason)
            await asyncio.sleep(DISK_RETRY_PAUSE_S)
            return False

    async def _follow(self, value: RegisterValue) -> None:
        """Copies the log from the leader until there is a newer value, and tries to make one whenever the lead looks vacant."""
        # Members are heard more often than it takes to miss them.
        wait_ms = self._lease_ms // (10 if is_voter(value, self.me) else 3)
        following = FollowerState(self._fetcher, value, wait_ms, self._changed.set, self._on_fetch_response)
        copying = self._loop.create_task(following.run())
        try:
            while True:
                newest = self._latest_value()
                assert newest is not None
                if newest.epoch > value.epoch:
                    if not following.is_leader_down and newest.leader not in (value.leader, self.me.broker):
                        self._notify_former_leader(value, newest)
                    return
                if copying.done():
                    copying.result()
                vacant_at = self._vacant_at_s(newest, following)
                if vacant_at <= self._loop.time():
                    await self._try_become_leader(newest, following)
                    vacant_at = self._loop.time() + RETRY_PAUSE_S
                    newest = self._latest_value()
                    if newest is not None and newest.epoch > value.epoch:
                        return
                await self._wait_for_change_or(copying, vacant_at - self._loop.time())
        finally:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

    def _notify_former_leader(self, former: RegisterValue, newest: RegisterValue) -> None:
        from ottla_broker.metadata.announcing import notify_former_leader  # a broker that is alone has nobody to tell

        if self._notification_task is not None:
            self._notification_task.cancel()
        self._notification_task = self._loop.create_task(notify_former_leader(former, newest, self._fetcher.client_id))

    def _vacant_at_s(self, value: RegisterValue, following: FollowerState) -> float:
        """When the lead is to be taken as vacant, if nothing changes, by the loop's clock."""
        if following.is_leader_down or value.holder == NO_LEADER:
            return self._next_attempt_s
        unchanged_since = max(following.last_response_s, self._register_view.unchanged_since_s)
        return max(unchanged_since + self._lease_ms / 1000, self._next_attempt_s)

    def _on_fetch_response(self, told: MetadataFetchResponse) -> None:
        """A leader has answered."""
        if told.high_watermark >= 0:
            self._failed_terms = 0
            if self._image.end_offset >= told.high_watermark:
                self._set_caught_up()

    def _set_caught_up(self) -> None:
        if not self._caught_up_future.done():
            self._caught_up_future.set_result(None)

    async def _try_become_leader(self, vacant: RegisterValue, following: FollowerState | None = None) -> None:
        """Tries to write the next epoch in this broker's name: `_won`, if that was done."""
        if not is_voter(vacant, self.me):
            if all(member.broker == self.me.broker for member in vacant.isr):
                with_new_leader(
                    vacant, self.me, 0, lease_ms=0
                )  # nobody else could ever lead: says why this one will not
            return
        if self._is_stopping or not await can_reach_election_quorum(vacant, self.me, self._fetcher.client_id):
            return

        def take(value: RegisterValue | None) -> RegisterValue | None:
            if value is None or value.epoch != vacant.epoch or not is_voter(value, self.me):
                return None
            if following is not None and self._vacant_at_s(value, following) > self._loop.time():
                return None
            return with_new_leader(value, self.me, self._runtime.now_ms(), lease_ms=self._lease_ms)

        try:
            self._acquired_value = await self._register_view.update(take)
        except RegisterError as reason:
            logger.warning("cannot take over the metadata log: %s", reason)

    # --- leading

    async def _lead(self, value: RegisterValue) -> None:
        """Until there is a newer value, or this broker's log fails."""
        leadership = LeaderState(value, self.me, self.log, self._loop.time, self._changed.set)
        office = LeaderTerm(
            value,
            leadership,
            self._register_view,
            self._store_epoch,
            self._fetcher,
            self.log,
            self._runtime,
            self._lease_ms,
            self._listener,
        )
        self.leader_state = leadership
        work = self._loop.create_task(office.run(self._on_established))
        try:
            while self.epoch == value.epoch and not leadership.is_over:
                await self._wait_for_change_or(work)
                if work.done():
                    work.result()
        finally:
            leadership.end_term()
            self.leader_state = None
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if leadership.is_established:
                self._on_resigned()
        if leadership.failure is not None:
            await self._stepping_down.resign_leadership(value.epoch)
            full = leadership.failure.code is ErrorCode.kafka_storage_error and self.log.log.failure is None
            if not full:
                raise leadership.failure
            logger.warning("broker %d cannot lead the metadata log: %s", self.me.broker, leadership.failure)
        # Whoever cannot be heard by the others should not go on disturbing them, and whose disk is full leaves the lead to them.
        if leadership.failure is not None or not leadership.is_established:
            self._failed_terms = min(self._failed_terms + 1, MAX_FAILED_TERMS)
            self._next_attempt_s = self._loop.time() + self._failed_terms * self._lease_ms / 1000
        logger.info("broker %d leads the metadata log no longer", self.me.broker)

    def _on_established(self) -> None:
        self._failed_terms = 0
        self._on_elected()
        self._set_caught_up()

    # --- waiting

    async def _wait_for_change(self, within_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _wait_for_change_or(self, work: "asyncio.Task[None]", within_s: float | None = None) -> None:
        """Returns when something was heard of the register, when `work` is done, or when the time is over."""
        self._changed.clear()
        news = self._loop.create_task(self._changed.wait())
        try:
            await asyncio.wait((work, news), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
