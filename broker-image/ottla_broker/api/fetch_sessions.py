"""Incremental fetch sessions (KIP-227): what a client fetches is remembered, so that requests name only what changed
and answers hold only what is new.

A request's (session id, epoch): (0, −1) no session wanted; (0 or id, 0) a new one, in place of the named; (id, n)
the next of that session; (id, −1) the last. An unknown id or an epoch out of turn is an error, and the client starts
anew. The cache has a fixed number of slots. A newcomer takes the place of the session that rested longest, if it has
rested for two minutes or is smaller than the newcomer; else the newcomer is served without a session.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch import Fetched, FetchPartition, FetchRequest, Topic

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
RESTED_S: Final = 120.0
_MAX_INT32 = 2**31 - 1

Key = tuple[Topic, int]


@dataclass(slots=True)
class Remembered:
    """A partition of a session: what is wanted of it, and what the client was last told."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start: int = -1
    told_error: bool = False

    def is_news(self, fetched: Fetched) -> bool:
        """Whether the client must hear this; remembers that it did."""
        failed = fetched.error is not ErrorCode.none
        news = (
            len(fetched.records) > 0
            or failed
            or self.told_error
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start != self.log_start
        )
        self.high_watermark, self.log_start, self.told_error = fetched.high_watermark, fetched.log_start, failed
        return news


@dataclass(slots=True)
class Session:
    """`partitions` in the order of serving: those that gave records move to the end, so that all get their turn."""

    id: int
    epoch: int
    used_at: float
    partitions: OrderedDict[Key, Remembered] = field(default_factory=OrderedDict)

    def wanted(self) -> list[FetchPartition]:
        return [remembered.wanted for remembered in self.partitions.values()]

    def change(self, updated: Iterable[FetchPartition], forgotten: Iterable[Key]) -> None:
        for wanted in updated:
            key = (wanted.topic, wanted.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = Remembered(wanted)
            else:
                known.wanted = wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def is_news(self, topic: Topic, fetched: Fetched) -> bool:
        key = (topic, fetched.partition)
        remembered = self.partitions.get(key)
        if remembered is None:
            return True
        if len(fetched.records) > 0:
            self.partitions.move_to_end(key)
        return remembered.is_news(fetched)


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

    def session_of(self, request: FetchRequest) -> tuple[Session | None, bool]:
        """The session a request belongs to and whether the answer is incremental. FETCH_SESSION_ID_NOT_FOUND,
        INVALID_FETCH_SESSION_EPOCH."""
        if request.session_epoch == FINAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            return None, False
        if request.session_epoch == FIRST_EPOCH:
            self._sessions.pop(request.session_id, None)
            return self._begin(request), False
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        session.epoch = session.epoch % _MAX_INT32 + 1
        session.used_at = self._now()
        self._sessions.move_to_end(session.id)
        session.change(request.partitions, request.forgotten)
        return session, True

    def _begin(self, request: FetchRequest) -> Session | None:
        if not request.partitions or not self._make_place(len(request.partitions)):
            return None
        session_id = self._random_below(_MAX_INT32) + 1
        while session_id in self._sessions:
            session_id = self._random_below(_MAX_INT32) + 1
        session = Session(session_id, FIRST_EPOCH + 1, self._now())
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
        del self._sessions[oldest.id]
        self.evicted += 1
        return True
