"""Incremental fetch sessions (KIP-227): what a client fetches is remembered, so that requests name only what changed
and answers hold only what is new.

A request's (session id, epoch): (0, −1) no session wanted; (0 or id, 0) a new one, in place of the named; (id, n)
the next of that session; (id, −1) the last. An unknown id or an epoch out of turn is an error, and the client starts
anew. A session that holds nothing any more ends with the request that leaves it so, which is answered without one. The cache has a fixed number of slots. A newcomer takes the place of the session that rested longest, if it has
rested for two minutes or is smaller than the newcomer; else the newcomer is served without a session.

A session costs what changes in it, not what it holds: a partition is looked at only when it is *stirred*, by a new
offset or by the partition itself, and until the client has been told all that there is.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch import FetchRequest, FetchRequestPartition, FetchResponsePartition, Topic

if TYPE_CHECKING:
    from ottla_broker.replication.partition import Partition

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
RESTED_S: Final = 120.0
_MAX_INT32 = 2**31 - 1

Key = tuple[Topic, int]


class Remembered:
    """A partition of a session: what is wanted of it, and what the client was last told. `name`: of its topic, once there was one."""

    __slots__ = ("_partition", "_session", "high_watermark", "log_start", "name", "told_error", "wanted")

    def __init__(self, session: "Session", wanted: FetchRequestPartition) -> None:
        self.wanted = wanted
        self.name: str | None = None
        self.high_watermark = -1
        self.log_start = -1
        self.told_error = False
        self._session = session
        self._partition: Partition | None = None  # where we watch

    def is_news(self, fetched: FetchResponsePartition) -> bool:
        """Whether the client must hear this; remembers that it did."""
        failed = fetched.error is not ErrorCode.none
        news = (
            len(fetched.records) > 0
            or failed
            or self.told_error
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start != self.log_start
            or fetched.diverging is not None
            or fetched.preferred >= 0
        )
        self.high_watermark, self.log_start, self.told_error = fetched.high_watermark, fetched.log_start, failed
        return news

    def watch(self, partition: "Partition") -> None:
        if self._partition is partition:
            return
        self.rest()
        self._partition = partition
        partition.read_waiters.add(self.stir)

    def rest(self) -> None:
        if self._partition is not None:
            self._partition.read_waiters.remove(self.stir)
            self._partition = None

    def stir(self) -> None:
        """Something may have come. While no fetch waits one call is enough: nothing more is heard before the next look."""
        session = self._session
        session.stirred[self] = None
        if session.wake is not None:
            session.wake()
        else:
            self.rest()


class Session:
    """`stirred`: what to look at, in the order of serving: those that gave records are at the end, so that all get
    their turn. `wake`: of the fetch that waits."""

    __slots__ = ("by_ids", "epoch", "id", "partitions", "stirred", "used_at", "wake")

    def __init__(self, session_id: int, by_ids: bool, used_at: float) -> None:
        self.id = session_id
        self.by_ids = by_ids
        self.epoch = FIRST_EPOCH + 1
        self.used_at = used_at
        self.partitions: dict[Key, Remembered] = {}
        self.stirred: dict[Remembered, None] = {}
        self.wake: Callable[[], None] | None = None

    def wanted(self) -> list[FetchRequestPartition]:
        return [remembered.wanted for remembered in self.stirred]

    def change(self, updated: Iterable[FetchRequestPartition], forgotten: Iterable[Key]) -> None:
        for wanted in updated:
            key = (wanted.topic, wanted.partition)
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = Remembered(self, wanted)
            else:
                known.wanted = wanted
            if known not in self.stirred:
                self.stirred[known] = None
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None:
                self.stirred.pop(gone, None)
                gone.rest()

    def found(self, wanted: FetchRequestPartition, name: str, partition: "Partition | None") -> None:
        """The topic is there, and the partition unless it is None."""
        remembered = self.partitions.get((wanted.topic, wanted.partition))
        if remembered is not None:
            remembered.name = name
            if partition is not None:
                remembered.watch(partition)

    def name_of(self, wanted: FetchRequestPartition) -> str | None:
        """Of the topic, if it was there when it was asked for before."""
        remembered = self.partitions.get((wanted.topic, wanted.partition))
        return None if remembered is None else remembered.name

    def is_news(self, topic: Topic, fetched: FetchResponsePartition) -> bool:
        """Whether an answer must hold this; it is taken as told. What has nothing more to give is not looked at again
        until it stirs."""
        remembered = self.partitions.get((topic, fetched.partition))
        if remembered is None:
            return True
        self.stirred.pop(remembered, None)
        failed = fetched.error is not ErrorCode.none
        elsewhere = fetched.diverging is not None or fetched.preferred >= 0
        if len(fetched.records) > 0 or fetched.more or failed or elsewhere:
            self.stirred[remembered] = None  # until another offset is asked for, it has the same to give
        return remembered.is_news(fetched)

    def end(self) -> None:
        for remembered in self.partitions.values():
            remembered.rest()


class FetchSessions:
    """At most `slots` sessions. `now`: seconds; `random_below`: chance, for ids that cannot be guessed from one
    another."""

    def __init__(self, slots: Callable[[], int], now: Callable[[], float], random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._now = now
        self._random_below = random_below
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the longest rested first
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def session_of(self, request: FetchRequest, *, by_ids: bool) -> tuple[Session | None, bool]:
        """The session a request belongs to and whether the answer is incremental. `by_ids`: what names the topics in this version; a session keeps
        to it. FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""
        if request.session_epoch == FINAL_EPOCH:
            self._end(request.session_id)
            return None, False
        if request.session_epoch == FIRST_EPOCH:
            self._end(request.session_id)
            return self._begin(request, by_ids), False
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_ids != by_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        session.change(request.partitions, request.forgotten)
        if not session.partitions:
            self._end(session.id)
            return None, False
        session.epoch = session.epoch % _MAX_INT32 + 1
        session.used_at = self._now()
        self._sessions.move_to_end(session.id)
        return session, True

    def _end(self, session_id: int) -> None:
        gone = self._sessions.pop(session_id, None)
        if gone is not None:
            gone.end()

    def _begin(self, request: FetchRequest, by_ids: bool) -> Session | None:
        if not self._make_place(len(request.partitions)):
            return None
        session_id = self._random_below(_MAX_INT32) + 1
        while session_id in self._sessions:
            session_id = self._random_below(_MAX_INT32) + 1
        session = Session(session_id, by_ids, self._now())
        session.change(request.partitions, ())
        self._sessions[session_id] = session
        return session

    def _make_place(self, partitions: int) -> bool:
        slots = self._slots()
        if len(self._sessions) < slots:
            return True
        if slots <= 0:
            return False
        oldest = next(iter(self._sessions.values()))
        if self._now() - oldest.used_at < RESTED_S and len(oldest.partitions) >= partitions:
            return False
        self._end(oldest.id)
        self.evicted += 1
        return True
