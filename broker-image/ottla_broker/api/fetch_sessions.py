"""Incremental fetch sessions (KIP-227): what a client fetches is remembered, so that requests name only what changed
and answers hold only what is new.

A request's (session id, epoch): (0, −1) no session wanted; (0 or id, 0) a new one, in place of the named; (id, n)
the next of that session; (id, −1) the last. An unknown id or an epoch out of turn is an error, and the client starts
anew. The cache has a fixed number of slots. A newcomer takes the place of the session that rested longest, if it has
rested for two minutes or is smaller than the newcomer; else the newcomer is served without a session.

A session costs what changes in it, not what it holds: a partition is looked at only when it is *stirred*, by a new
offset or by the partition itself, and until the client has been told all that there is. A follower is told of a high
watermark that rose with the next answer; that alone wakes no fetch that waits.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch import CONSUMER, Fetched, FetchPartition, FetchRequest, Topic

if TYPE_CHECKING:
    from ottla_broker.replication.partition import Partition

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
RESTED_S: Final = 120.0
SESSIONS_OF_A_FOLLOWER: Final = 4
_MAX_INT32 = 2**31 - 1

Key = tuple[Topic, int]


class Remembered:
    """A partition of a session: what is wanted of it, and what the client was last told."""

    __slots__ = ("_partition", "_session", "high_watermark", "log_start", "told_error", "wanted")

    def __init__(self, session: "Session", wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start = -1
        self.told_error = False
        self._session = session
        self._partition: Partition | None = None  # where we watch

    def is_news(self, fetched: Fetched) -> bool:
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
        if self._session.replica == CONSUMER:
            partition.watch(self.stir)
        else:
            partition.watch(self.tell)
            partition.watch_end(self.stir)

    def rest(self) -> None:
        if self._partition is not None:
            self._partition.unwatch(self.stir)
            if self._session.replica != CONSUMER:
                self._partition.unwatch(self.tell)
            self._partition = None

    def stir(self) -> None:
        """Something may have come. While no fetch waits one call is enough: nothing more is heard before the next look."""
        session = self._session
        session.stirred[self] = None
        if session.wake is not None:
            session.wake()
        else:
            self.rest()

    def tell(self) -> None:
        session = self._session
        session.stirred[self] = None
        if session.prompt and session.wake is not None:
            session.wake()


class Session:
    """`stirred`: what to look at, in the order of serving: those that gave records are at the end, so that all get
    their turn. `wake`: of the fetch that waits."""

    __slots__ = ("epoch", "id", "partitions", "prompt", "replica", "stirred", "used_at", "wake")

    def __init__(self, session_id: int, used_at: float, replica: int = CONSUMER) -> None:
        self.id = session_id
        self.epoch = FIRST_EPOCH + 1
        self.used_at = used_at
        self.replica = replica
        self.partitions: dict[Key, Remembered] = {}
        self.stirred: dict[Remembered, None] = {}
        self.wake: Callable[[], None] | None = None
        self.prompt = False  # whether a follower is told at once of a high watermark that rose

    def wanted(self) -> list[FetchPartition]:
        return [remembered.wanted for remembered in self.stirred]

    def change(self, updated: Iterable[FetchPartition], forgotten: Iterable[Key]) -> None:
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

    def watch(self, wanted: FetchPartition, partition: "Partition") -> None:
        remembered = self.partitions.get((wanted.topic, wanted.partition))
        if remembered is not None:
            remembered.watch(partition)

    def is_news(self, topic: Topic, fetched: Fetched) -> bool:
        """Whether an answer must hold this; it is taken as told. What has nothing more to give is not looked at again
        until it stirs."""
        remembered = self.partitions.get((topic, fetched.partition))
        if remembered is None:
            return True
        self.stirred.pop(remembered, None)
        if len(fetched.records) > 0 or fetched.more or fetched.error is not ErrorCode.none:
            self.stirred[remembered] = None  # until another offset is asked for, it has the same to give
        return remembered.is_news(fetched)

    def has_news(self, topic: Topic, fetched: Fetched) -> bool:
        """Whether the client knows another high watermark."""
        remembered = self.partitions.get((topic, fetched.partition))
        return remembered is not None and remembered.high_watermark != fetched.high_watermark

    def end(self) -> None:
        for remembered in self.partitions.values():
            remembered.rest()


class FetchSessions:
    """At most `slots` sessions. `now`: seconds; `random_below`: chance, for ids that cannot be guessed from one
    another. Followers' sessions take no slots: each broker may have a few."""

    def __init__(self, slots: Callable[[], int], now: Callable[[], float], random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._now = now
        self._random_below = random_below
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the longest rested first
        self._followers: dict[int, Session] = {}
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def session_of(self, request: FetchRequest) -> tuple[Session | None, bool]:
        """The session a request belongs to and whether the answer is incremental. FETCH_SESSION_ID_NOT_FOUND,
        INVALID_FETCH_SESSION_EPOCH."""
        if request.session_epoch == FINAL_EPOCH:
            self._end(request.session_id)
            return None, False
        if request.session_epoch == FIRST_EPOCH:
            self._end(request.session_id)
            return self._begin(request), False
        session = self._sessions.get(request.session_id) or self._followers.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        session.epoch = session.epoch % _MAX_INT32 + 1
        session.used_at = self._now()
        if session.replica == CONSUMER:
            self._sessions.move_to_end(session.id)
        session.change(request.partitions, request.forgotten)
        return session, True

    def _end(self, session_id: int) -> None:
        gone = self._sessions.pop(session_id, None) or self._followers.pop(session_id, None)
        if gone is not None:
            gone.end()

    def _begin(self, request: FetchRequest) -> Session | None:
        if not request.partitions:
            return None
        if request.replica != CONSUMER:
            self._make_place_of_follower(request.replica)
        elif not self._make_place(len(request.partitions)):
            return None
        session_id = self._random_below(_MAX_INT32) + 1
        while session_id in self._sessions or session_id in self._followers:
            session_id = self._random_below(_MAX_INT32) + 1
        session = Session(session_id, self._now(), request.replica)
        session.change(request.partitions, ())
        if request.replica == CONSUMER:
            self._sessions[session_id] = session
        else:
            self._followers[session_id] = session
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

    def _make_place_of_follower(self, replica: int) -> None:
        """A follower that has lost its connection begins anew, and cannot name what it had."""
        theirs = sorted((one for one in self._followers.values() if one.replica == replica), key=_used_at)
        for session in theirs[: max(len(theirs) + 1 - SESSIONS_OF_A_FOLLOWER, 0)]:
            self._end(session.id)


def _used_at(session: Session) -> float:
    return session.used_at
