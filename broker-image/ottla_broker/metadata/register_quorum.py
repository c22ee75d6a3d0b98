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
from ottla_broker.metadata.following import Copying, Following, parse_host_and_port
from ottla_broker.metadata.founding import check_cluster, check_may_found
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.metadata_fetch import CONSUMER_REPLICA_ID, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.promise import Promise
from ottla_broker.metadata.quorum_office import Office
from ottla_broker.metadata.reaching import reaches_enough
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.register import Member, Register, RegisterError, RegisterValue
from ottla_broker.metadata.register.steps import NOBODY, address_of, founded, is_member, led_by, taken_over
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.metadata.snapshots import SnapshotStore
from ottla_broker.metadata.stepping_down import SteppingDown
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

PAUSE_S = 0.1
DISK_PAUSE_S = 0.5
MOST_FAILURES = 5


class RegisterQuorum:
    """`listener`: the name of the one that brokers use among themselves. `elected` and `deposed` are called when this broker has become the active
    controller, and when it is none any more."""

    def __init__(
        self,
        me: Member,
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
        self.leadership: LeaderState | None = None
        self._image = image
        self._runtime = runtime
        self._lease_ms = lease_ms
        self._listener = listener
        self._intervals = snapshot_intervals
        self._known_cluster_id = cluster_id
        self._elected = on_elected
        self._deposed = on_resigned
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._view = RegisterView(register, self._news.set)
        self._promise = Promise(metadata_log.directory, disk, runtime, self._news.set)
        self._copying = Copying(self.log, me.broker, me.directory, runtime)
        self._stepping_down = SteppingDown(me, image, self._view, runtime, self._newest)
        self._won: RegisterValue | None = None  # what this life wrote to the register and has not led yet
        self._caught_up: asyncio.Future[None] = self._loop.create_future()
        self._failures = 0  # epochs in a row that were this broker's and in which it could not lead …
        self._not_before = 0.0  # … and when it may try again, by the loop's clock
        self._stopping = False
        self._telling: asyncio.Task[None] | None = None

    # --- what the broker asks

    @property
    def value(self) -> RegisterValue:
        """The newest value heard of. KafkaError COORDINATOR_NOT_AVAILABLE before any was."""
        known = self._newest()
        if known is None:
            raise KafkaError(ErrorCode.coordinator_not_available, "nothing is known of the register yet")
        return known

    @property
    def cluster_id(self) -> str:
        return self.value.cluster_id

    @property
    def leader_id(self) -> int:
        """The broker that leads the metadata log, as far as this one knows; −1: nobody."""
        known = self._newest()
        return NOBODY if known is None else known.leader

    @property
    def epoch(self) -> int:
        known = self._newest()
        return -1 if known is None else known.epoch

    @property
    def is_leader(self) -> bool:
        """Whether this broker is the active controller."""
        return self.leadership is not None and self.leadership.established and not self.leadership.over

    def hears_majority(self, within_s: float) -> bool:
        """Whether this broker leads, and a majority of the members has asked for something lately."""
        return self.leadership is not None and self.leadership.hears_majority(within_s)

    def leader_address(self) -> tuple[str, int] | None:
        known = self._newest()
        address = "" if known is None else address_of(known, known.leader)
        return parse_host_and_port(address) if address else None

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """All of `records` or none (one batch), in every later leader's log when this returns. NOT_CONTROLLER: this broker does not lead, or
        does not any more, and then the records may or may not come to be committed. KAFKA_STORAGE_ERROR."""
        if self.leadership is None:
            raise KafkaError(ErrorCode.not_controller, "this broker does not lead the metadata log")
        return await self.leadership.commit(records)

    async def handle_fetch(self, ask: MetadataFetchRequest) -> MetadataFetchResponse:
        """What a broker or a consumer that fetches the metadata log is told."""
        if None not in (ask.cluster_id, self._known_cluster_id) and ask.cluster_id != self._known_cluster_id:
            return MetadataFetchResponse(ErrorCode.inconsistent_cluster_id)
        if ask.replica_id == CONSUMER_REPLICA_ID:
            return self.log.tell_reader(ask)
        if self.leadership is not None:
            return await self.leadership.answer(ask)
        if ask.leader_epoch == self._promise.epoch and ask.replica_id == self._promise.leader:
            return self.log.tell_new_leader(ask)
        if ask.leader_epoch > self._promise.epoch:
            return MetadataFetchResponse(ErrorCode.unknown_leader_epoch)
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower)

    async def handle_begin_quorum_epoch(self, leader: int, epoch: int, address: str) -> None:
        """A broker says that it leads the metadata log in `epoch`: its word is as good as the register's, which gave it the epoch."""
        known = self._newest()
        if known is None or epoch <= known.epoch:
            return
        await self._promise.keep(led_by(known, leader, epoch, address))

    # --- its life

    async def wait_until_caught_up(self) -> None:
        """Returns when the image is as the leader's, or this broker leads. Raises what `run` does before that."""
        await self._caught_up

    async def resign(self) -> None:
        """Before a stop: a leader that others can succeed says so, and leads on until one of them does, or none is left to do it."""
        stopped_before, self._stopping = self._stopping, True
        if stopped_before:
            return
        await self._stepping_down.hand_over(self.leadership)

    async def run(self) -> None:
        """Until cancelled. KafkaError INCONSISTENT_CLUSTER_ID, or what the disk says when the log fails; RegisterError when the register is away
        and this broker has never seen it."""
        try:
            snapshot_generator.load(self.log)
            await self._first_look()
            beside = [
                self._loop.create_task(self._view.follow()),
                self._loop.create_task(snapshot_generator.keep_making(self.log, self._intervals, self._runtime)),
            ]
            try:
                while True:
                    await self._turn()
            finally:
                for task in (*beside, self._telling):
                    if task is not None:
                        task.cancel()
        except (KafkaError, RegisterError) as reason:
            if self._caught_up.done():
                raise
            self._caught_up.set_exception(reason)

    async def _first_look(self) -> None:
        """The register, or what is remembered of it while it is away; its first value where there is none."""
        try:
            seen = await self._view.read()
        except RegisterError as reason:
            if self._promise.value is None:
                raise
            logger.warning("%s; what this broker remembers of it has to do", reason)
            self._enter(self._promise.value)
            return
        while seen.value is None:
            check_may_found(self._promise.value, self.me)
            if (value := await self._view.write(self._first_value)) is not None:
                self._won = value
            seen = await self._view.read() if self._view.seen is None else self._view.seen
        self._enter(seen.value)

    def _first_value(self, found: RegisterValue | None) -> RegisterValue | None:
        if found is not None:
            return None
        cluster_id = self._known_cluster_id or uuid_text(self._runtime.new_uuid())
        epoch = max(self.log.position.epoch, self._promise.epoch, 0) + 1
        return founded(cluster_id, self.me, self._runtime.now_ms(), lease_ms=self._lease_ms, epoch=epoch)

    def _enter(self, value: RegisterValue) -> None:
        check_cluster(self._known_cluster_id, value)
        self._known_cluster_id = self._copying.cluster_id = value.cluster_id

    def _newest(self) -> RegisterValue | None:
        """Of what the register said and what was promised, whichever has the larger epoch."""
        seen, promised = self._view.value, self._promise.value
        if seen is None or (promised is not None and promised.epoch > seen.epoch):
            return promised
        return seen

    # --- one turn: lead, follow or take over

    async def _turn(self) -> None:
        value = self._newest()
        if value is None:
            await self._wait_for_news(PAUSE_S)
        elif self._won is not None and self._won.epoch == value.epoch:
            won, self._won = self._won, None
            if await self._promised(won):
                await self._lead(won)
        elif value.leader != self.me.broker:
            if await self._promised(value):
                await self._follow(value)
        else:  # an earlier life of this broker, or a write whose end was not known, or one that could not lead: none of them does
            if self._loop.time() >= self._not_before:
                await self._take_over(value)
            if self._won is None:
                await self._wait_for_news(PAUSE_S)

    async def _promised(self, value: RegisterValue) -> bool:
        """Whether this broker may go along with the value's epoch. On a disk that takes nothing now it goes along with nobody until it does."""
        try:
            return await self._promise.keep(value)
        except KafkaError as reason:
            logger.warning("epoch %d of the metadata log is not joined yet: %s", value.epoch, reason)
            await asyncio.sleep(DISK_PAUSE_S)
            return False

    async def _follow(self, value: RegisterValue) -> None:
        """Copies the log from the leader until there is a newer value, and tries to make one whenever the lead looks vacant."""
        # Members are heard more often than it takes to miss them.
        wait_ms = self._lease_ms // (10 if is_member(value, self.me) else 3)
        following = Following(self._copying, value, wait_ms, self._news.set, self._heard)
        copying = self._loop.create_task(following.run())
        try:
            while True:
                newest = self._newest()
                assert newest is not None
                if newest.epoch > value.epoch:
                    if not following.gone and newest.leader not in (value.leader, self.me.broker):
                        self._tell_former(value, newest)
                    return
                if copying.done():
                    copying.result()
                vacant_at = self._vacant_at(newest, following)
                if vacant_at <= self._loop.time():
                    await self._take_over(newest, following)
                    vacant_at = self._loop.time() + PAUSE_S
                    newest = self._newest()
                    if newest is not None and newest.epoch > value.epoch:
                        return
                await self._news_or(copying, vacant_at - self._loop.time())
        finally:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

    def _tell_former(self, former: RegisterValue, newest: RegisterValue) -> None:
        from ottla_broker.metadata.announcing import tell_former  # a broker that is alone has nobody to tell

        if self._telling is not None:
            self._telling.cancel()
        self._telling = self._loop.create_task(tell_former(former, newest, self._copying.client_id))

    def _vacant_at(self, value: RegisterValue, following: Following) -> float:
        """When the lead is to be taken as vacant, if nothing changes, by the loop's clock."""
        if following.gone or value.holder == NOBODY:
            return self._not_before
        unchanged_since = max(following.answered_at, self._view.unchanged_since)
        return max(unchanged_since + self._lease_ms / 1000, self._not_before)

    def _heard(self, told: MetadataFetchResponse) -> None:
        """A leader has answered."""
        if told.high_watermark >= 0:
            self._failures = 0
            if self._image.end_offset >= told.high_watermark:
                self._is_caught_up()

    def _is_caught_up(self) -> None:
        if not self._caught_up.done():
            self._caught_up.set_result(None)

    async def _take_over(self, vacant: RegisterValue, following: Following | None = None) -> None:
        """Tries to write the next epoch in this broker's name: `_won`, if that was done."""
        if not is_member(vacant, self.me):
            if all(member.broker == self.me.broker for member in vacant.isr):
                taken_over(vacant, self.me, 0, lease_ms=0)  # nobody else could ever lead: says why this one will not
            return
        if self._stopping or not await reaches_enough(vacant, self.me, self._copying.client_id):
            return

        def take(value: RegisterValue | None) -> RegisterValue | None:
            if value is None or value.epoch != vacant.epoch or not is_member(value, self.me):
                return None
            if following is not None and self._vacant_at(value, following) > self._loop.time():
                return None
            return taken_over(value, self.me, self._runtime.now_ms(), lease_ms=self._lease_ms)

        try:
            self._won = await self._view.write(take)
        except RegisterError as reason:
            logger.warning("cannot take over the metadata log: %s", reason)

    # --- leading

    async def _lead(self, value: RegisterValue) -> None:
        """Until there is a newer value, or this broker's log fails."""
        leadership = LeaderState(value, self.me, self.log, self._loop.time, self._news.set)
        office = Office(
            value,
            leadership,
            self._view,
            self._promised,
            self._copying,
            self.log,
            self._runtime,
            self._lease_ms,
            self._listener,
        )
        self.leadership = leadership
        work = self._loop.create_task(office.run(self._established))
        try:
            while self.epoch == value.epoch and not leadership.over:
                await self._news_or(work)
                if work.done():
                    work.result()
        finally:
            leadership.end()
            self.leadership = None
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if leadership.established:
                self._deposed()
        if leadership.failure is not None:
            await self._stepping_down.resign(value.epoch)
            full = leadership.failure.code is ErrorCode.kafka_storage_error and self.log.log.failure is None
            if not full:
                raise leadership.failure
            logger.warning("broker %d cannot lead the metadata log: %s", self.me.broker, leadership.failure)
        # Whoever cannot be heard by the others should not go on disturbing them, and whose disk is full leaves the lead to them.
        if leadership.failure is not None or not leadership.established:
            self._failures = min(self._failures + 1, MOST_FAILURES)
            self._not_before = self._loop.time() + self._failures * self._lease_ms / 1000
        logger.info("broker %d leads the metadata log no longer", self.me.broker)

    def _established(self) -> None:
        self._failures = 0
        self._elected()
        self._is_caught_up()

    # --- waiting

    async def _wait_for_news(self, within_s: float) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return

    async def _news_or(self, work: "asyncio.Task[None]", within_s: float | None = None) -> None:
        """Returns when something was heard of the register, when `work` is done, or when the time is over."""
        self._news.clear()
        news = self._loop.create_task(self._news.wait())
        try:
            await asyncio.wait((work, news), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
