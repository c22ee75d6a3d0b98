"""One connection to one leader, by which this broker copies every partition that it follows there.

The fetch session (KIP-227) holds all of them; a request names those whose offset has changed. An answer is taken in the turn of the loop in which
it comes, and the next request leaves in that turn. A partition that fails leaves the session for a while and stops nobody else. What begins to be
followed while a request waits at the leader is asked for at once, in a second request: the leader then hurries with the first.

With `synced`, partitions whose topics have `flush.messages=1` are copied: what came is fsynced before the next request tells the leader so. They
have a connection of their own, or everybody would wait for the device.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from ottla_broker.metadata.records import Endpoint
from ottla_broker.replication import following
from ottla_broker.replication.following import Outcome
from ottla_broker.replication.leader_offsets import EARLIEST, LATEST, leader_offset
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.reading import Malformed
from ottla_broker.wire.replica_fetch import Got, Request, Response, Wanted, read_response, write_request

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.02
NO_SESSION: Final = (0, 0)
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pace:
    """replica.fetch.*: milliseconds and bytes."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000
    answer_within_ms: int = 30_000  # replica.socket.timeout.ms


class Home(Protocol):
    """What a fetcher needs of its broker."""

    me: int

    def pace(self) -> Pace: ...
    def broker_epoch(self) -> int: ...
    def address_of(self, broker: int) -> Endpoint | None: ...
    def held_back_s(self, partition: Partition) -> float:
        """How long a throttle keeps this partition from being fetched."""
        ...

    def took(self, partition: Partition, size: int) -> None: ...


class Followed:
    """A partition that is fetched here. `since`: the number of the request that named it last, with offset `asked`; an answer to an earlier
    one is about another offset or another epoch. `not_before_s`: it failed, or is throttled."""

    __slots__ = ("asked", "epoch", "in_session", "lag", "not_before_s", "partition", "pause_s", "since")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.in_session = False
        self.since = 0
        self.asked = 0
        self.lag = 0  # records
        self.not_before_s = 0.0
        self.pause_s = 0.0


class Fetcher:
    def __init__(self, leader: int, synced: bool, home: Home) -> None:
        self.leader = leader
        self.synced = synced
        self.followed: dict[tuple[UUID, int], Followed] = {}
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._changed: dict[Followed, None] = {}  # to be named in the next request
        self._forgotten: list[tuple[UUID, int]] = []
        self._session = NO_SESSION  # id and epoch of the next request
        self._broker_epoch = -1  # of this broker, in which the session was begun
        self._numbers = 0  # requests sent
        self._in_flight: deque[int] = deque()  # numbers of requests that wait for their answer
        self._asked_s = 0.0
        self._channel: Channel | None = None
        self._lost: asyncio.Future[Exception] | None = None
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._urgent = False  # something began to be followed while a request waits at the leader
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._syncs = 0  # answers whose records are being synced
        self._wanted = asyncio.Event()
        self._try_again = asyncio.Event()
        self._running = self._loop.create_task(self._run(), name=f"fetch from broker {leader}")

    # --- what is followed

    def follow(self, partition: Partition) -> None:
        """From now on, or anew in another leader epoch."""
        key = (partition.topic_id, partition.partition)
        known = self.followed.get(key)
        if known is not None and known.partition is partition:
            if known.epoch == partition.leader_epoch:
                return
            known.epoch, known.pause_s, known.not_before_s = partition.leader_epoch, 0.0, 0.0
        else:
            known = self.followed[key] = Followed(partition)
        self._changed[known] = None
        self._urgent = True
        self._wanted.set()
        self._send_soon()

    def forget(self, partition: Partition) -> None:
        known = self.followed.get((partition.topic_id, partition.partition))
        if known is not None and known.partition is partition:
            del self.followed[partition.topic_id, partition.partition]
            self._leave_session(known)
            if not self.followed:
                self._wanted.clear()
                self.begin_anew("nothing is followed there any more")

    def begin_anew(self, why: str) -> None:
        """Ends the connection, and with it the session; the next one begins from what the logs hold then."""
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(ConnectionAbortedError(why))

    def try_again(self) -> None:
        """The leader may be back."""
        self._try_again.set()

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def _leave_session(self, known: Followed) -> None:
        self._changed.pop(known, None)
        if known.in_session:
            known.in_session = False
            self._forgotten.append((known.partition.topic_id, known.partition.partition))

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
            if not self.followed:
                continue
            logger.info("fetching from broker %d: %s", self.leader, reason)
            self._try_again.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._try_again.wait(), pause_s)
            pause_s = min(pause_s * 2, max(self._home.pace().backoff_ms / 1000, FIRST_PAUSE_S))

    async def _connect(self) -> Channel:
        if self._home.broker_epoch() < 0:
            raise KafkaError(ErrorCode.broker_not_available, "this broker is not registered yet")
        address = self._home.address_of(self.leader)
        if address is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {self.leader} is not registered")
        within_s = self._home.pace().answer_within_ms / 1000
        async with asyncio.timeout(within_s):
            return await open_channel(address.host, address.port, f"broker-{self._home.me}-fetcher")

    async def _stay(self) -> Exception:
        """Until the connection is over; why."""
        self._lost = self._loop.create_future()
        self._begin_session()
        self._send()
        within_s = self._home.pace().answer_within_ms / 1000
        while True:
            done, _ = await asyncio.wait([self._lost], timeout=within_s / 2)
            if done:
                return self._lost.result()
            if self._in_flight and self._loop.time() - self._asked_s > within_s:
                return TimeoutError(f"no answer in {within_s:.0f} s")
            if not (self._in_flight or self._syncs or self._later):
                return TimeoutError("it stands still")

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        for handle in (self._soon, self._later, *self._tasks):
            if handle is not None:
                handle.cancel()
        self._soon = self._later = None
        self._syncs = 0
        self._in_flight.clear()

    def _begin_session(self) -> None:
        self._session = NO_SESSION
        self._broker_epoch = self._home.broker_epoch()
        self._forgotten.clear()
        for known in self.followed.values():
            known.in_session = False
            self._changed[known] = None

    # --- asking

    def _send_soon(self) -> None:
        """What begins to be followed in one turn of the loop is asked for in one request."""
        if self._channel is not None and self._soon is None:
            self._soon = self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Sends a request if there is something to ask for that is not being asked for already."""
        self._soon = None
        if self._channel is None or self._syncs:
            return
        if self._broker_epoch != self._home.broker_epoch():
            self._begin_session()  # what leaders know of us is of an earlier registration
        if self._in_flight and (len(self._in_flight) > 1 or not self._urgent or self._session == NO_SESSION):
            return
        topics = self._topics()
        if not topics and (self._in_flight or self._session == NO_SESSION):
            return
        self._urgent = False
        self._numbers += 1
        for topic, wanted in topics.items():
            for one in wanted:
                known = self.followed[topic, one.partition]
                known.since, known.asked, known.in_session = self._numbers, one.offset, True
        pace = self._home.pace()
        session_id, epoch = self._session
        correlation_id = self._channel.next_correlation()
        request = Request(
            self._home.me,
            self._broker_epoch,
            pace.max_wait_ms,
            pace.min_bytes,
            pace.response_max_bytes,
            session_id,
            epoch,
            topics.items(),
            [(topic, (index,)) for topic, index in self._forgotten],
        )
        self._forgotten.clear()
        if session_id:
            self._session = session_id, epoch % _MAX_INT32 + 1
        self._in_flight.append(self._numbers)
        self._asked_s = self._loop.time()
        client_id = f"broker-{self._home.me}-fetcher"
        try:
            self._channel.post(correlation_id, [write_request(correlation_id, client_id, request)], self._answered)
        except OSError as reason:
            self.begin_anew(str(reason))

    def _topics(self) -> dict[UUID, list[Wanted]]:
        """Takes what has changed and may be asked for now; what may not is looked at again when its time comes."""
        if not self._changed:
            return {}
        now_s, max_bytes = self._loop.time(), self._home.pace().max_bytes
        changed, self._changed = self._changed, {}
        topics: dict[UUID, list[Wanted]] = {}
        next_s = 0.0
        for known in changed:
            if known.not_before_s > now_s:
                self._changed[known] = None
                next_s = min(next_s, known.not_before_s) if next_s else known.not_before_s
            else:
                topics.setdefault(known.partition.topic_id, []).append(following.wanted(known.partition, max_bytes))
        if next_s and (self._later is None or self._later.when() > next_s):
            if self._later is not None:
                self._later.cancel()
            self._later = self._loop.call_at(next_s, self._look_again)
        return topics

    def _look_again(self) -> None:
        self._later = None
        self._urgent = True
        self._send()

    # --- hearing

    def _answered(self, answer: bytearray | Exception) -> None:
        if isinstance(answer, Exception):
            self.begin_anew(str(answer))
            return
        if not self._in_flight:
            return  # of a connection that was given up
        try:
            self._hear(self._in_flight.popleft(), read_response(answer))
        except Malformed as reason:
            self.begin_anew(str(reason))

    def _hear(self, number: int, response: Response) -> None:
        if response.error is not ErrorCode.none:
            self._session_failed(response)
            return
        if self._session == NO_SESSION and response.session_id:
            self._session = response.session_id, 1
        unsynced = [
            known
            for got in response.partitions
            if (known := self.followed.get((got.topic, got.partition))) is not None
            and number >= known.since
            and known.in_session
            and self._take(known, got)
        ]
        if unsynced:
            self._syncs += 1
            self._spawn(self._sync(unsynced))
        elif self._session == NO_SESSION:
            self._begin_session()  # the leader remembers none: everything is asked for every time
        self._send()

    def _session_failed(self, response: Response) -> None:
        if response.error in (ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch):
            if not self._in_flight:
                self._begin_session()
                self._send()
            # else the answer to the other request will say the same
        else:
            self.begin_anew(f"it answers {response.error.name}")

    def _take(self, known: Followed, got: Got) -> bool:
        """Whether its log must be synced before it is asked for again."""
        partition = known.partition
        if got.records and known.asked != partition.log.end:
            return False  # it is known already, and the next request says so
        try:
            outcome = following.take(partition, got)
        except KafkaError as reason:
            logger.warning(
                "%s-%d cannot be copied from broker %d: %s", partition.topic, partition.partition, self.leader, reason
            )
            self._fail(known, self._home.pace().backoff_ms / 1000)
            return False
        if outcome is Outcome.failed:
            self._fail(known, self._next_pause_s(known, got.error))
            return False
        if outcome is Outcome.out_of_range:
            self._fail(known, self._home.pace().backoff_ms / 1000)
            self._spawn(self._find_range(known))
            return False
        known.pause_s = 0.0
        known.lag = max(got.high_watermark - partition.log.end, 0)
        if outcome is Outcome.same:
            return False
        self._home.took(partition, len(got.records))
        if self.synced and partition.log.flush.flushed < partition.log.end:
            return True
        self._ask_on(known)
        return False

    def _ask_on(self, known: Followed) -> None:
        held_s = self._home.held_back_s(known.partition)
        if held_s > 0:
            self._rest(known, held_s)
        else:
            self._changed[known] = None

    def _next_pause_s(self, known: Followed, code: ErrorCode) -> float:
        """The metadata of two brokers seldom differ for long: the first tries come soon."""
        longest_s = self._home.pace().backoff_ms / 1000
        if known.pause_s == 0.0:
            logger.info(
                "%s-%d: broker %d says %s", known.partition.topic, known.partition.partition, self.leader, code.name
            )
        return (
            longest_s if code is ErrorCode.kafka_storage_error else min(known.pause_s * 2 or FIRST_PAUSE_S, longest_s)
        )

    def _fail(self, known: Followed, pause_s: float) -> None:
        known.pause_s = pause_s
        self._rest(known, pause_s)

    def _rest(self, known: Followed, pause_s: float) -> None:
        """Out of the session for a while."""
        self._leave_session(known)
        known.not_before_s = self._loop.time() + pause_s
        self._changed[known] = None

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _sync(self, unsynced: list[Followed]) -> None:
        """One fsync of each log, all at once; then the leader may count on them."""
        results = await asyncio.gather(
            *(known.partition.log.synced(known.partition.log.end) for known in unsynced), return_exceptions=True
        )
        self._syncs -= 1
        for known, result in zip(unsynced, results, strict=True):
            if not self._follows(known):
                continue
            if isinstance(result, KafkaError):
                self._fail(known, self._home.pace().backoff_ms / 1000)
            elif isinstance(result, BaseException):
                raise result
            else:
                self._ask_on(known)
        self._send()

    def _follows(self, known: Followed) -> bool:
        return self.followed.get((known.partition.topic_id, known.partition.partition)) is known

    async def _find_range(self, known: Followed) -> None:
        """Our offset is not in the leader's log: asks where that starts and ends, and goes there."""
        channel, partition, epoch = self._channel, known.partition, known.epoch
        if channel is None:
            return
        try:
            start = await leader_offset(channel, self._home.me, partition, EARLIEST)
            end = await leader_offset(channel, self._home.me, partition, LATEST)
            if not self._follows(known) or epoch != partition.leader_epoch or partition.leads:
                return
            following.start_where_leader_is(partition.log, start, end)
        except (OSError, KafkaError) as reason:
            logger.warning(
                "%s-%d: its leader's offsets cannot be had: %s", partition.topic, partition.partition, reason
            )
            return
        known.not_before_s = 0.0
        self._urgent = True
        self._send_soon()
