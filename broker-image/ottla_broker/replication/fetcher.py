"""One connection to one leader, by which this broker copies every partition that it follows there.

An answer is taken in the turn of the loop in which it comes, and the next request leaves in that turn. What fails for one partition stops nobody
else: that one rests, longer each time.

With `synced`, partitions whose topics have `flush.messages=1` are copied: what came is fsynced before the next request tells the leader so. They
have a connection of their own, or everybody would wait for the device.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from ottla_broker.metadata.records import Endpoint
from ottla_broker.replication import following
from ottla_broker.replication.fetch_session import LOST, Followed, FollowerSession
from ottla_broker.replication.following import Outcome
from ottla_broker.replication.leader_offsets import EARLIEST, LATEST, leader_offset
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.replica_fetch import FetchResponsePartition, Request, read_response, write_request

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.02
# A connection that a cut has silenced is made anew long before TCP's own retries come round; a leader that is merely slow is given twice the time
# with every try, up to replica.socket.timeout.ms.
FIRST_PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Pace:
    """replica.fetch.*: milliseconds and bytes."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000
    answer_within_ms: int = 30_000  # replica.socket.timeout.ms

    @property
    def longest_pause_s(self) -> float:
        return max(self.backoff_ms / 1000, FIRST_PAUSE_S)


class Home(Protocol):
    """What a fetcher needs of its broker."""

    me: int
    pace: Pace

    def broker_epoch(self) -> int: ...
    def address_of(self, broker: int) -> Endpoint | None: ...
    def held_back_s(self, partition: Partition) -> float:
        """How long a throttle keeps this partition from being fetched."""
        ...

    def took(self, partition: Partition, size: int) -> None: ...


class Fetcher:
    def __init__(self, leader: int, synced: bool, home: Home) -> None:
        self.leader = leader
        self.session = FollowerSession()
        self._synced = synced
        self._home = home
        self._pace = home.pace
        self._loop = asyncio.get_running_loop()
        self._client_id = f"broker-{home.me}-fetcher"
        self._broker_epoch = -1  # of this broker, in which the session was begun
        self._asked_s = 0.0
        self._channel: Channel | None = None
        self._lost: asyncio.Future[Exception] | None = None
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.Handle | None = None
        self._later_s = 0.0  # of its time it cannot always be asked: uvloop has no timer for a time that has passed
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._syncs = 0  # answers whose records are being synced
        self._wanted = asyncio.Event()
        self._try_again = asyncio.Event()
        self._patience_s = FIRST_PATIENCE_S
        self._running = self._loop.create_task(self._run(), name=f"fetch from broker {leader}")

    # --- what is followed

    def follow(self, partition: Partition) -> None:
        """From now on, or anew in another leader epoch."""
        if self.session.follow(partition):
            self._wanted.set()
            self._send_soon()

    def forget(self, partition: Partition) -> None:
        self.session.forget(partition)
        if not self.session.followed:
            self._wanted.clear()
            self._end("nothing is followed there any more")

    def try_again(self) -> None:
        """The leader may be back."""
        self._try_again.set()

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    # --- the connection

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._wanted.wait()
            try:
                self._channel = await self._connect()
                pause_s = FIRST_PAUSE_S
                reason = await self._stay()
            except (OSError, KafkaError, TimeoutError) as error:
                reason = error
            finally:
                self._disconnect()
            if isinstance(reason, TimeoutError):
                self._patience_s = self._patience() * 2
            if not self.session.followed:
                continue
            if self._home.broker_epoch() >= 0:  # else it has not begun
                logger.info("fetching from broker %d: %s", self.leader, reason)
            self._try_again.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._try_again.wait(), pause_s)
            pause_s = min(pause_s * 2, self._pace.longest_pause_s)

    async def _connect(self) -> Channel:
        if self._home.broker_epoch() < 0:
            raise KafkaError(ErrorCode.broker_not_available, "this broker is not registered yet")
        address = self._home.address_of(self.leader)
        if address is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {self.leader} is not registered")
        async with asyncio.timeout(self._patience()):
            return await open_channel(address.host, address.port, self._client_id)

    async def _stay(self) -> Exception:
        """Until the connection is over; why."""
        self._lost = self._loop.create_future()
        self._begin_session()
        self._send()
        within_s = self._patience() + self._pace.max_wait_ms / 1000
        while True:
            done, _ = await asyncio.wait([self._lost], timeout=within_s / 2)
            if done:
                return self._lost.result()
            if self.session.waits and self._loop.time() - self._asked_s > within_s:
                return TimeoutError(f"no answer in {within_s:.0f} s")
            if not (self.session.waits or self._syncs or self._later):
                return TimeoutError("it stands still")

    def _patience(self) -> float:
        """How long an answer may take, in seconds."""
        return min(self._patience_s, self._pace.answer_within_ms / 1000)

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        for handle in (self._soon, self._later, *self._tasks):
            if handle is not None:
                handle.cancel()
        self._soon = self._later = None
        self._syncs = 0

    def _end(self, why: str) -> None:
        """Of the connection, and with it of the session; the next one begins from what the logs hold then."""
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(ConnectionAbortedError(why))

    def _begin_session(self) -> None:
        self._broker_epoch = self._home.broker_epoch()
        self.session.begin()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    # --- asking

    def _send_soon(self) -> None:
        """What begins to be followed in one turn of the loop is asked for in one request."""
        if self._channel is not None and self._soon is None:
            self._soon = self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._soon = None
        if self._channel is None or self._syncs:
            return
        if self._broker_epoch != self._home.broker_epoch():
            self._end("this broker was registered anew")  # what the leader knows of us is of an earlier life
            return
        pace, now_s = self._pace, self._loop.time()
        request = self.session.next_request(
            now_s,
            Request(self._home.me, self._broker_epoch, pace.max_wait_ms, pace.min_bytes, pace.response_max_bytes),
            pace.max_bytes,
        )
        self._look_later()
        if request is None:
            return
        self._asked_s = now_s
        correlation_id = self._channel.next_correlation_id()
        try:
            self._channel.send_with_callback(
                correlation_id, [write_request(correlation_id, self._client_id, request)], self._answered
            )
        except OSError as reason:
            self._end(str(reason))

    def _look_later(self) -> None:
        at_s = self.session.rests_until_s
        if at_s and (self._later is None or self._later_s > at_s):
            if self._later is not None:
                self._later.cancel()
            self._later, self._later_s = self._loop.call_at(at_s, self._look_again), at_s

    def _look_again(self) -> None:
        self._later = None
        self.session.rest_is_over()
        self._send()

    # --- hearing

    def _answered(self, answer: bytearray | Exception) -> None:
        if self._channel is None or not self.session.waits:
            return  # of a connection that was given up
        if isinstance(answer, Exception):
            self._end(str(answer))
            return
        self._patience_s = FIRST_PATIENCE_S
        try:
            response = read_response(answer)
        except MalformedMessage as reason:
            self._end(str(reason))
            return
        if response.error is not ErrorCode.none and response.error not in LOST:
            self._end(f"it answers {response.error.name}")
            return
        unsynced = [known for known, got in self.session.heard(response) if self._take(known, got)]
        if unsynced:
            self._syncs += 1
            self._spawn(self._sync(unsynced))
        self._send()

    def _take(self, known: Followed, got: FetchResponsePartition) -> bool:
        """Whether its log must be synced before it is asked for again."""
        partition = known.partition
        try:
            outcome = following.take(partition, got)
        except KafkaError as reason:
            logger.warning("%r cannot be copied from broker %d: %s", partition, self.leader, reason)
            self._fail(known, self._pace.longest_pause_s)
            return False
        if outcome is Outcome.failed:
            self._fail(known, self._next_pause_s(known, got.error))
            return False
        if outcome is Outcome.out_of_range:
            self._fail(known, self._pace.longest_pause_s)
            self._spawn(self._find_range(known))
            return False
        known.pause_s = 0.0
        known.lag = max(got.high_watermark - partition.log.end, 0)
        if outcome is Outcome.same:
            return False
        if outcome is Outcome.shortened:
            self.session.hurry(known)
            return False
        self._home.took(partition, len(got.records))
        if self._synced and partition.log.flush.flushed < partition.log.end:
            return True
        self._ask_on(known)
        return False

    def _ask_on(self, known: Followed) -> None:
        held_s = self._home.held_back_s(known.partition)
        if held_s > 0:
            self.session.rest(known, self._loop.time() + held_s)
        else:
            self.session.ask_on(known)

    def _next_pause_s(self, known: Followed, code: ErrorCode) -> float:
        """The metadata of two brokers seldom differ for long: the first tries come soon."""
        if known.pause_s == 0.0:
            logger.info("%r: broker %d says %s", known.partition, self.leader, code.name)
        longest_s = self._pace.longest_pause_s
        return (
            longest_s if code is ErrorCode.kafka_storage_error else min(known.pause_s * 2 or FIRST_PAUSE_S, longest_s)
        )

    def _fail(self, known: Followed, pause_s: float) -> None:
        known.pause_s = pause_s
        self.session.rest(known, self._loop.time() + pause_s)

    async def _sync(self, unsynced: list[Followed]) -> None:
        """One fsync of each log, all at once; then the leader may count on them."""
        results = await asyncio.gather(
            *(known.partition.log.wait_until_synced(known.partition.log.end) for known in unsynced),
            return_exceptions=True,
        )
        self._syncs -= 1
        for known, result in zip(unsynced, results, strict=True):
            if not self.session.follows(known):
                continue
            if isinstance(result, KafkaError):
                self._fail(known, self._pace.longest_pause_s)
            elif isinstance(result, BaseException):
                raise result
            else:
                self._ask_on(known)
        self._send()

    async def _find_range(self, known: Followed) -> None:
        """Our offset is not in the leader's log: asks where that starts and ends, and goes there."""
        channel, partition, epoch = self._channel, known.partition, known.epoch
        assert channel is not None
        try:
            start = await leader_offset(channel, self._home.me, partition, EARLIEST)
            end = await leader_offset(channel, self._home.me, partition, LATEST)
            if not self.session.follows(known) or epoch != partition.leader_epoch:
                return
            following.move_into_leader_range(partition.log, start, end)
            partition.on_log_truncated()
        except (OSError, KafkaError) as reason:
            logger.warning("%r: its leader's offsets cannot be had: %s", partition, reason)
            return
        self.session.hurry(known)
        self._send_soon()
