"""Incremental fetch sessions (KIP-227), of consumers and of followers: requests name only what
changed, responses hold only what is new.

A request's (session id, epoch): (0, −1) no session; (0, 0) a new session; (id, 0) a new session in
place of that one; (id, n) the next request of that session; (id, −1) its last request. An unknown
id or an unexpected epoch is an error, and the fetcher starts a new session. A consumer's session
ends with the request that leaves no partition in it.

Consumers' sessions have a fixed number of slots. A new session takes the place of the least
recently used one, if that was idle for two minutes or is smaller; else the request is served
without a session. A follower has at most four sessions. It begins a new one for each connection and
does not end the old one.

The work for a session grows with the partitions that change in it, not with those that it holds.
Invariant: each of its partitions is in `changed`, to be read by the next fetch, or its callbacks
are among the partition's waiters. While a fetch waits, all of them have callbacks.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field
from typing import Final

from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition
from ottla_broker.wire.fetch_response import FetchResponsePartition
from ottla_broker.wire.produce import Topic

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
EVICTABLE_AFTER_S: Final = 120.0
MAX_SESSIONS_PER_REPLICA: Final = 4
_MAX_INT32 = 2**31 - 1

PartitionKey = tuple[Topic, int]


@dataclass(slots=True, eq=False)
class CachedPartition:
    """A partition of a session: the request, and the last response.

    `has_more`: there was more to read than the last read returned. `topic_name`: name of a topic
    that the request names by its id. Of followers' sessions: `position_recorded`: the leader has
    taken the request's offset as the follower's log end; `must_answer`: the follower has sent a new
    request for the partition, and may have ignored the last response."""

    _session: "FetchSession"
    request: FetchRequestPartition
    partition: Partition | None = None
    topic_name: str | None = None
    high_watermark: int = -1
    log_start: int = -1
    error_sent: bool = False
    has_more: bool = False
    position_recorded: bool = False
    must_answer: bool = field(init=False)
    _watched: bool = False

    def __post_init__(self) -> None:
        self.must_answer = self._session.is_replica

    def set_request(self, request: FetchRequestPartition) -> None:
        self.request = request
        self.position_recorded = False
        self.must_answer = self._session.is_replica

    def record_again(self) -> None:
        """Records the offset with the next fetch, if the partition is still in the session."""
        session = self._session
        if session.partitions.get((self.request.topic, self.request.partition)) is self:
            self.position_recorded = False
            session.changed[self] = None

    def is_news(self, data: FetchResponsePartition) -> bool:
        """True if an incremental response must hold `data`."""
        return (
            len(data.records) > 0
            or data.error is not ErrorCode.none
            or self.error_sent
            or data.high_watermark != self.high_watermark
            or data.log_start != self.log_start
            or data.diverging is not None
            or data.preferred >= 0
            or self.must_answer
        )

    def awaits_commit(self) -> bool:
        """True if the follower does not know that all records of earlier epochs are committed, or
        does not know the log start that a DeleteRecords request waits for."""
        partition = self.partition
        if partition is None:
            return False
        if partition.is_leader and max(self.high_watermark, 0) < partition.leader.epoch_start_offset:
            return True
        return self.log_start != partition.log.start and bool(partition.low_watermark_waiters.waiting)

    def on_response(self, data: FetchResponsePartition) -> None:
        """Records what the fetcher knows now. The response holds `data`, unless it is no news."""
        self.high_watermark, self.log_start = data.high_watermark, data.log_start
        self.error_sent = data.error is not ErrorCode.none
        self.must_answer = False
        self._session.on_response(self, data)

    # --- waiting

    def set_partition(self, partition: Partition | None) -> None:
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition

    def watch(self) -> None:
        if self._watched or (partition := self.partition) is None:
            return
        self._watched = True
        if self._session.is_replica:
            partition.read_waiters.add(self._on_high_watermark)
            partition.log_end_waiters.add(self._on_change)
        else:
            partition.read_waiters.add(self._on_change)

    def unwatch(self) -> None:
        if self._watched and (partition := self.partition) is not None:
            self._watched = False
            if self._session.is_replica:
                partition.read_waiters.remove(self._on_high_watermark)
                partition.log_end_waiters.remove(self._on_change)
            else:
                partition.read_waiters.remove(self._on_change)

    def _on_change(self) -> None:
        session = self._session
        session.changed[self] = None
        if session.wake is not None:
            session.wake()
        else:
            self.unwatch()

    def _on_high_watermark(self) -> None:
        session = self._session
        session.changed[self] = None
        if session.wake is not None and (session.sends_high_watermark_at_once or self.awaits_commit()):
            session.wake()


@dataclass(slots=True, eq=False)
class FetchSession:
    """`changed`: the partitions to read next, in this order. `wake`: wakes the fetch that waits.
    `sends_high_watermark_at_once`: true for a follower that consumers read from (KIP-392).
    `read_by`: the reader of the last `read_as`, None before the first. For a fetch without a
    session there is a FetchSession with id 0."""

    id: int
    request: InitVar[FetchRequest]
    by_ids: bool = True
    used_s: float = 0.0
    sends_high_watermark_at_once: bool = False
    epoch: int = FIRST_EPOCH + 1
    replica: int = field(init=False)
    replica_epoch: int = field(init=False)
    is_replica: bool = field(init=False)
    partitions: dict[PartitionKey, CachedPartition] = field(default_factory=dict)
    changed: dict[CachedPartition, None] = field(default_factory=dict)
    wake: Callable[[], None] | None = None
    read_by: object | None = None

    def __post_init__(self, request: FetchRequest) -> None:
        self.replica, self.replica_epoch = request.replica, request.replica_epoch
        self.is_replica = request.replica >= 0
        if self.id:
            self.update(request.partitions, ())
        else:
            self.changed = {CachedPartition(self, partition): None for partition in request.partitions}

    def update(self, requested: Iterable[FetchRequestPartition], forgotten: Iterable[PartitionKey]) -> None:
        partitions, changed = self.partitions, self.changed
        for request in requested:
            key = (request.topic, request.partition)
            cached = partitions.get(key)
            if cached is None:
                cached = partitions[key] = CachedPartition(self, request)
            else:
                cached.set_request(request)
            changed[cached] = None
        for key in forgotten:
            gone = partitions.pop(key, None)
            if gone is not None:
                changed.pop(gone, None)
                gone.unwatch()

    def read_as(self, reader: object) -> None:
        """`reader`: the client and the version of the access rules. If it is not that of the last
        fetch, all partitions are read again, so that a partition without new records also gets an
        error if the client may no longer read it."""
        if self.read_by != reader:
            if self.read_by is not None:
                for cached in self.partitions.values():
                    self.changed.setdefault(cached)
            self.read_by = reader

    def on_response(self, cached: CachedPartition, data: FetchResponsePartition) -> None:
        """Keeps a partition that must be read again in `changed`; the others wait for a change. A
        consumer's partition that returned records moves behind the others, so that every partition
        gets its turn: the consumer may fetch the same offset again. A follower's next fetch has
        another offset or waits."""
        if not self.id:
            return
        if self.is_replica:
            stays = cached.has_more
        else:
            failed = data.error is not ErrorCode.none
            stays = failed or cached.has_more or data.diverging is not None or data.preferred >= 0
            if data.records:
                stays = True
                del self.changed[cached]
                self.changed[cached] = None
        if not stays:
            self.changed.pop(cached, None)
            cached.watch()

    def watch_changed(self) -> None:
        for cached in self.changed:
            cached.watch()

    def close(self) -> None:
        for cached in self.partitions.values():
            cached.unwatch()
        for cached in self.changed:
            cached.unwatch()


@dataclass(eq=False, repr=False)
class FetchSessionCache:
    """`_max_consumer_sessions`: max.incremental.fetch.session.cache.slots. `_random_below`: for ids
    that cannot be guessed from one another."""

    _max_consumer_sessions: Callable[[], int]
    _now_s: Callable[[], float]
    _random_below: Callable[[int], int]
    _followers_serve_consumers: bool = False
    # Both with the least recently used first.
    _consumers: OrderedDict[int, FetchSession] = field(default_factory=OrderedDict)
    _replicas: OrderedDict[int, FetchSession] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        """The number of consumers' sessions."""
        return len(self._consumers)

    def session_for(self, request: FetchRequest, *, by_ids: bool) -> tuple[FetchSession, bool]:
        """The session that a request belongs to, with the request's changes, and whether the
        response is incremental. `by_ids`: the request's version names topics by id; all requests of
        a session do the same. Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR."""
        if request.session_epoch == FINAL_EPOCH:
            self._end(request)
            return FetchSession(NO_SESSION, request), False
        if request.session_epoch == FIRST_EPOCH:
            self._end(request)
            return self._begin(request, by_ids), False
        session = self._of(request).get(request.session_id)
        if (
            session is None
            or session.replica != request.replica
            or (session.is_replica and session.replica_epoch != request.replica_epoch)
        ):
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_ids != by_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        session.update(request.partitions, request.forgotten)
        if not session.partitions and not session.is_replica:
            self._end(request)
            return FetchSession(NO_SESSION, request), False
        session.epoch = session.epoch % _MAX_INT32 + 1
        session.used_s = self._now_s()
        self._of(request).move_to_end(session.id)
        return session, True

    def end(self, session: FetchSession) -> None:
        (self._replicas if session.is_replica else self._consumers).pop(session.id, None)
        session.close()

    def _of(self, request: FetchRequest) -> OrderedDict[int, FetchSession]:
        return self._replicas if request.replica >= 0 else self._consumers

    def _end(self, request: FetchRequest) -> None:
        session = self._of(request).pop(request.session_id, None)
        if session is not None:
            session.close()

    def _begin(self, request: FetchRequest, by_ids: bool) -> FetchSession:
        if request.replica >= 0:
            self._make_room_for_replica(request.replica)
        elif not self._make_room(request):
            return FetchSession(NO_SESSION, request)
        session_id = self._random_below(_MAX_INT32) + 1
        while session_id in self._consumers or session_id in self._replicas:
            session_id = self._random_below(_MAX_INT32) + 1
        session = self._of(request)[session_id] = FetchSession(
            session_id,
            request,
            by_ids=by_ids,
            used_s=self._now_s(),
            sends_high_watermark_at_once=self._followers_serve_consumers,
        )
        return session

    def _make_room(self, request: FetchRequest) -> bool:
        """Evicts the least recently used session if that is needed. False if the new session gets
        no slot."""
        slots = self._max_consumer_sessions()
        if len(self._consumers) < slots:
            return True
        if slots <= 0:
            return False
        oldest = next(iter(self._consumers.values()))
        idle_s = self._now_s() - oldest.used_s
        if idle_s < EVICTABLE_AFTER_S and len(oldest.partitions) >= len(request.partitions):
            return False
        del self._consumers[oldest.id]
        oldest.close()
        return True

    def _make_room_for_replica(self, replica: int) -> None:
        own = [session for session in self._replicas.values() if session.replica == replica]
        for session in own[: max(len(own) + 1 - MAX_SESSIONS_PER_REPLICA, 0)]:
            del self._replicas[session.id]
            session.close()
