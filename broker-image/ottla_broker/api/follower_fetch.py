"""Fetch (1) of this cluster's own followers, version 17: what `replication.fetcher` asks.

- Everything that a follower copies from here is in one session; a request names what has changed. A partition costs something only when it is
  stirred: by a new offset, by an append, by a high watermark that rose, by the metadata.
- A follower reads to the log's end, and with each offset says how far its own log goes, unless the epoch of its last record tells that the logs
  part before (rule 2): then it is told where.
- It is answered as soon as there are records or an error, otherwise after its `max_wait`. A high watermark that rose goes along with the next answer;
  it is told at once where consumers read from followers (KIP-392), and until the follower has heard that what earlier leaders appended is
  committed: producers may wait there for just that.
- A follower that knows of a newer leader epoch than we waits for our metadata. Replicas that are not in the ISR are held back by the throttle of
  those that are being moved.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla_broker.api.follower_sessions import FollowersSession, Place
from ottla_broker.replication.throttle import Throttle, is_throttled
from ottla_broker.requests.context import Buffers, DelayedFetchResponse, Reply, RequestContext
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.leader_fetch import Answer, FollowerRequest

if TYPE_CHECKING:
    from ottla_broker.replication.partition import Partition
    from ottla_broker.replication.partitions import Partitions

MOST_BYTES: Final = 4 << 20
"""What a follower is given at a time: so much the loop can read and send between two requests of clients."""
SESSIONS_OF_A_FOLLOWER: Final = 4
FINAL_EPOCH: Final = -1
NO_EPOCH: Final = -1
_MAX_INT32 = 2**31 - 1

Standing = tuple[ErrorCode | None, tuple[int, int] | None]
"""What is wrong with a place, None for what will probably be right in a moment; and where the follower's log parts from ours."""
NOT_YET: Final = None
ALL_IS_WELL: Final[Standing] = (ErrorCode.none, None)


class FollowerFetching:
    """The handler, with the sessions of all followers. `prompt`: whether consumers read from followers."""

    def __init__(self, throttle: Throttle, random_below: Callable[[int], int], *, prompt: bool) -> None:
        self._throttle = throttle
        self._random_below = random_below
        self._prompt = prompt
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, FollowersSession] = {}

    def __call__(self, context: RequestContext, request: FollowerRequest, correlation_id: int) -> Reply:
        try:
            session = self._session_of(request)
        except KafkaError as reason:
            return Answer().finish(correlation_id, 0, reason.code)
        session.change(request)
        look = Look(context.broker.partitions, session, request, self._throttle, correlation_id)
        if look.there_is_enough() or request.max_wait_ms <= 0 or not session.id:
            answer = look.answer(over=True)
            if not session.id:
                session.end()
            return answer
        return Wait(look, request.max_wait_ms / 1000, self._loop).future

    def _session_of(self, request: FollowerRequest) -> FollowersSession:
        """FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH."""
        now_s = self._loop.time()
        if request.session_epoch == FINAL_EPOCH:
            self._end(request.session_id)
            return FollowersSession(0, request, self._prompt, now_s)
        if request.session_epoch == 0:
            self._end(request.session_id)
            self._make_place(request.replica)
            session_id = self._random_below(_MAX_INT32) + 1
            while session_id in self._sessions:
                session_id = self._random_below(_MAX_INT32) + 1
            session = FollowersSession(session_id, request, self._prompt, now_s)
            self._sessions[session_id] = session
        else:
            found = self._sessions.get(request.session_id)
            if found is None or found.replica != request.replica or found.replica_epoch != request.replica_epoch:
                raise KafkaError(ErrorCode.fetch_session_id_not_found)
            if request.session_epoch != found.epoch:
                raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
            session = found
        session.epoch = session.epoch % _MAX_INT32 + 1
        session.used_s = now_s
        return session

    def _make_place(self, replica: int) -> None:
        """A follower that has lost its connection begins anew, and cannot name what it had."""
        theirs = sorted((one for one in self._sessions.values() if one.replica == replica), key=_used_s)
        for session in theirs[: max(len(theirs) + 1 - SESSIONS_OF_A_FOLLOWER, 0)]:
            self._end(session.id)

    def _end(self, session_id: int) -> None:
        gone = self._sessions.pop(session_id, None)
        if gone is not None:
            gone.end()


class Look:
    """What a session's stirred partitions have to give to one request. What was told is not looked at again before the follower asks for another
    offset, or the partition stirs."""

    __slots__ = ("_correlation_id", "_partitions", "_request", "_throttle", "session")

    def __init__(
        self,
        partitions: "Partitions",
        session: FollowersSession,
        request: FollowerRequest,
        throttle: Throttle,
        correlation_id: int,
    ) -> None:
        self.session = session
        self._partitions = partitions
        self._request = request
        self._throttle = throttle
        self._correlation_id = correlation_id

    def there_is_enough(self) -> bool:
        """Whether to answer now. Takes note of offsets, and passes over what turns out to be no news."""
        size, least, stirred = 0, self._request.min_bytes, self.session.stirred
        for place in tuple(stirred):
            code, diverging = self._stands(place)
            if code is NOT_YET:
                continue
            if code is not ErrorCode.none or diverging is not None:
                return True
            assert place.partition is not None
            log = place.partition.log
            if place.offset < log.end:
                if not self._is_held_back(place.partition):
                    size += 1 if least <= 1 else log.size_from(place.offset)
                    if size >= least:
                        return True
            elif not place.has_news():
                if not place.asked_anew:
                    del stirred[place]
            elif self.session.prompt or place.is_owed():
                return True
        return least <= 0

    def answer(self, *, over: bool = False) -> Buffers:
        """All that there is. `over`: nothing is waited for any more, so that what is not there yet is told as an error."""
        answer, later = Answer(), dict[Place, None]()
        most = min(self._request.max_bytes, MOST_BYTES)
        for place in self.session.stirred:
            code, diverging = self._stands(place)
            if code is NOT_YET and not over:
                later[place] = None
                continue
            records: Buffer = b""
            if code is ErrorCode.none and diverging is None:
                assert place.partition is not None
                log = place.partition.log
                if place.offset < log.end:
                    if self._is_held_back(place.partition) or (answer.partitions and answer.size >= most):
                        later[place] = None
                    else:
                        code, records = self._read(place, most - answer.size, first=answer.size == 0)
                        if code is ErrorCode.none and not records:
                            later[place] = None
                if code is ErrorCode.none and not (records or place.asked_anew or place.has_news()):
                    continue
            if code is not ErrorCode.none:
                place.failed()
                answer.put(place.topic, place.index, code or ErrorCode.unknown_leader_epoch, -1, -1, b"", None)
            else:
                watermark, start = place.told()
                answer.put(place.topic, place.index, 0, watermark, start, records, diverging)
        self.session.stirred = later
        return answer.finish(self._correlation_id, self.session.id)

    def _stands(self, place: Place) -> Standing:
        partition = place.partition
        if (
            partition is None
            or partition.leader_epoch != place.epoch
            or not partition.is_leader
            or partition.log.failure is not None
        ):
            try:
                partition = self._find(place)
            except KafkaError as reason:
                waits = reason.code is ErrorCode.unknown_leader_epoch and place.partition is not None
                return NOT_YET if waits else reason.code, None  # the metadata that make us leader are on their way
        return ALL_IS_WELL if place.noted else self._note(place, partition)

    def _find(self, place: Place) -> "Partition":
        topic_id = UUID(bytes=place.topic)
        name = self._partitions.topic_name(topic_id)
        hosted = self._partitions.get(name, place.index)
        if hosted is not None:
            place.watch(hosted)
        else:
            place.rest()
        return self._partitions.leader(name, place.index, epoch=place.epoch, topic_id=topic_id)

    def _note(self, place: Place, partition: "Partition") -> Standing:
        """Takes the offset as how far the follower's log goes, unless that parts from ours before."""
        log = partition.log
        if place.last_epoch != NO_EPOCH and (place.last_epoch != log.epochs.latest_epoch() or place.offset > log.end):
            epoch, end = log.epochs.end_offset_for(place.last_epoch, log.end)
            if epoch == NO_EPOCH:
                return ErrorCode.offset_out_of_range, None
            if epoch < place.last_epoch or end < place.offset:
                return ErrorCode.none, (epoch, end)
        if not log.start <= place.offset <= log.end:
            return ErrorCode.offset_out_of_range, None
        try:
            partition.record_follower_fetch(self.session.replica, self.session.replica_epoch, place.offset, place.start)
        except KafkaError as reason:
            return reason.code, None
        place.noted = True
        return ALL_IS_WELL

    def _read(self, place: Place, left: int, *, first: bool) -> tuple[ErrorCode, Buffer]:
        partition = place.partition
        assert partition is not None
        try:
            records = partition.log.read(
                place.offset, min(left, place.most), up_to=partition.log.end, at_least_one=first
            )
        except KafkaError as reason:
            return reason.code, b""
        partition.traffic.replication_out += len(records)
        if self._is_throttled(partition):
            self._throttle.record_bytes(len(records))
        return ErrorCode.none, records

    def _is_held_back(self, partition: "Partition") -> bool:
        return self._is_throttled(partition) and self._throttle.throttle_time_s() > 0

    def _is_throttled(self, partition: "Partition") -> bool:
        entries = partition.log.config.leader_replication_throttled_replicas
        replica = self.session.replica
        return is_throttled(entries, partition.partition, replica) and replica not in partition.registration.isr


class Wait:
    """A follower's fetch that waits for records: one timer. Nothing is left of it when it is answered or its connection is gone."""

    __slots__ = ("_checking", "_look", "_loop", "_timer", "future")

    def __init__(self, look: Look, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._look = look
        self._loop = loop
        self._checking = False
        self.future = DelayedFetchResponse(self._hurry, self._over, loop=loop)
        self._timer = loop.call_later(seconds, self._time_is_over)
        look.session.wake = self._woken

    def _woken(self) -> None:
        # Not at once: more may come in the same turn.
        if not self._checking:
            self._checking = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._checking = False
        if not self.future.done() and self._look.there_is_enough():
            self.future.complete(self._look.answer())

    def _hurry(self) -> None:
        if not self.future.done():
            self.future.complete(self._look.answer())

    def _time_is_over(self) -> None:
        if not self.future.done():
            self.future.complete(self._look.answer(over=True))

    def _over(self) -> None:
        self._timer.cancel()
        if self._look.session.wake == self._woken:
            self._look.session.wake = None


def _used_s(session: FollowersSession) -> float:
    return session.used_s
