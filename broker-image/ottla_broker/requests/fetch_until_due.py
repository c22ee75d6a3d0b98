"""A fetch request whose partitions are read again when they change, until its response is due."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.replication.fetch_reading import Reader
from ottla_broker.replication.fetch_response_cache import FetchResponseCache, ResponseKey, with_correlation_id
from ottla_broker.replication.fetch_sessions import CachedPartition, FetchSession
from ottla_broker.replication.not_yet import NotYet
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.current_leader import WRONG_BROKER_ERRORS, current_leader, leader_endpoints
from ottla_broker.requests.reply import Buffers, DelayedFetchResponse
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import FetchRequest
from ottla_broker.wire.fetch_response import FetchResponsePartition, write_fetch_response

UNREAD_ERRORS: Final = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.topic_authorization_failed}
)
"""Errors of partitions that Kafka does not try to read. Their aborted transactions are an empty
list and not null."""


@dataclass(slots=True, eq=False)
class Fetch:
    """One fetch request. Its partitions are read again when they change, until there are enough
    records for a response.

    `limit`: bytes of records in the response. `response_cache`: None unless identical fetches get
    identical responses. Responses in fetch sessions are incremental, and those of a rack-aware
    leader depend on the client's rack."""

    context: RequestContext
    correlation_id: int
    request: FetchRequest
    session: FetchSession
    _reader: Reader
    _incremental: bool
    _end_session: Callable[[FetchSession], None]
    limit: int = 0
    response_cache: FetchResponseCache | None = None
    size: int = 0  # bytes of records that the last read found
    _found: list[tuple[CachedPartition, FetchResponsePartition]] = field(default_factory=list)
    _not_yet: list[FetchResponsePartition] = field(default_factory=list)

    def response_if_due(self) -> Buffers | None:
        if self.context.quota is not None:
            if self.context.quota.throttle_ms:
                return self._throttled_response()  # for what its client did before; nothing is read
        elif self.response_cache is not None and (cached := self._cached_response(self.response_cache)) is not None:
            return cached
        return self.response() if self.read() else None

    def can_wait(self) -> bool:
        request = self.request
        return request.max_wait_ms > 0 and (
            self.session.id > 0 or (len(request.partitions) > 0 and request.replica < 0)
        )

    def read(self) -> bool:
        """Reads the available records. True if the response is due: `min_bytes` are there, a limit
        leaves records out, a partition has an error other than NotYet, or the reader has a reason
        of its own.
        """
        size, due, limit, reader = 0, False, self.limit, self._reader
        found = self._found = []
        self._not_yet = []
        reader.before_read()
        for cached in tuple(self.session.changed):
            try:
                data = reader.read(cached, limit - size, first=size == 0)
            except KafkaError as reason:
                data = FetchResponsePartition(cached.request.topic, cached.request.partition, reason.code)
                if reason.code in UNREAD_ERRORS:
                    data.aborted = ()
                cached.has_more = False
                if isinstance(reason, NotYet):
                    self._not_yet.append(data)
                else:
                    due = True
                    if not self.session.is_replica and reason.code in WRONG_BROKER_ERRORS:
                        data.leader = current_leader(self.context, data.topic, data.partition)
            else:
                size += len(data.records)
                due = due or reader.is_due(cached, data)
            found.append((cached, data))
        self.size = size
        return due or size >= min(self.request.min_bytes, limit) or self._is_full()

    def _is_full(self) -> bool:
        """True if a partition has records that were not read, or if the fetcher reads from an older
        segment, as in Kafka. Records are not read if they do not fit beside those of other
        partitions or after those of their own, or if they lie in the next segment.
        """
        if not self.size:
            return False
        return any(
            cached.has_more
            or (
                data.records
                and cached.partition is not None
                and (
                    cached.request.offset < cached.partition.log.segments.active.base
                    or self._reader.has_records_behind(cached, data.records)
                )
            )
            for cached, data in self._found
        )

    @property
    def missing_bytes(self) -> int:
        """Number of bytes by which the logs must grow before the response can be due."""
        max_bytes = sum(cached.request.max_bytes for cached in self.session.changed)
        return min(self.request.min_bytes, self.limit, max_bytes) - self.size

    def response(self, *, expired: bool = False) -> Buffers:
        """The response with the result of the last read. `expired`: the fetch waits no longer, so
        what is not there yet is an error.
        """
        session, partitions, leaders = self.session, [], []
        quota = None if session.is_replica else self.context.quota
        if quota is not None and not quota.charge_fetch(self.size):
            return self._throttled_response()
        for cached, data in self._found:
            if self._not_yet and not expired and any(data is one for one in self._not_yet):
                if self._incremental:
                    continue
                data.error = ErrorCode.none
                cached.has_more = True
            if data.records:
                assert cached.partition is not None
                self._reader.count_sent(cached.partition, len(data.records))
            if not self._incremental or cached.is_news(data):
                partitions.append(data)
            if data.leader is not None:
                leaders.append(data.leader[0])
            if session.id:
                cached.on_response(data)
        buffers = write_fetch_response(
            self.context.version,
            self.correlation_id,
            partitions,
            session_id=session.id,
            endpoints=leader_endpoints(self.context, leaders) if leaders else (),
            throttle_ms=0 if quota is None else quota.throttle_ms,
        )
        if self.response_cache is not None and quota is None:
            ((cached, data),) = self._found
            if cached.partition is not None and self._is_cacheable(data):
                self.response_cache.put(self._cache_key(cached), cached.partition, self.size, buffers)
        self._found = []  # a fetch that is kept for its repetition keeps no records
        return buffers

    def _is_cacheable(self, data: FetchResponsePartition) -> bool:
        """True if the same fetch has the same response until the partition changes. A response
        without records must have neither an error nor a diverging epoch, and its fetch must not
        wait.
        """
        if self.size:
            return True
        return self.request.max_wait_ms <= 0 and data.error is ErrorCode.none and data.diverging is None

    def _throttled_response(self) -> Buffers:
        """An empty response. A session that this request has begun is ended, and its client begins
        another one, as with Kafka (KIP-219).
        """
        self._found = []
        session_id = self.session.id
        if session_id and not self._incremental:
            self._end_session(self.session)
            session_id = 0
        return write_fetch_response(
            self.context.version,
            self.correlation_id,
            (),
            session_id=session_id,
            throttle_ms=self.context.throttle_ms,
        )

    def _cached_response(self, cache: FetchResponseCache) -> Buffers | None:
        (cached,) = self.session.changed
        known = cache.find(self._cache_key(cached), self.request.min_bytes if self.request.max_wait_ms > 0 else 0)
        if known is None:
            return None
        try:
            if self._reader.find(cached) is not known.partition:
                return None
        except KafkaError:
            return None
        if known.size:
            self._reader.count_sent(known.partition, known.size)
        return with_correlation_id(known.buffers, self.correlation_id)

    def _cache_key(self, cached: CachedPartition) -> ResponseKey:
        request = cached.request
        return (
            request.offset,
            request.max_bytes,
            request.leader_epoch,
            request.last_fetched_epoch,
            self.limit,
            self.request.isolation,
            self.context.version,
        )


class DelayedFetch:
    """A fetch that waits for records: one timer, and callbacks among its partitions' waiters.
    Nothing of it remains when it is answered or its connection is closed."""

    __slots__ = ("_checking", "_fetch", "_loop", "_missing_bytes", "_sizes", "_timer", "response")

    def __init__(self, fetch: Fetch, loop: asyncio.AbstractEventLoop) -> None:
        self._fetch = fetch
        self._loop = loop
        self._checking = False
        self.response = DelayedFetchResponse(self._force_complete, self._on_end, loop=loop)
        self._timer = loop.call_later(fetch.request.max_wait_ms / 1000, self._expire)
        self._watch()

    def _watch(self) -> None:
        fetch = self._fetch
        fetch.session.wake = self._wake
        fetch.session.watch_changed()
        self._missing_bytes = 1 if fetch.request.min_bytes <= 1 else fetch.missing_bytes
        self._sizes: list[tuple[Partition, int, int]] = []
        if self._missing_bytes > 1:
            partitions = [cached.partition for cached in fetch.session.changed if cached.partition is not None]
            self._sizes = [(one, one.log.size, one.leader_epoch) for one in partitions]

    def _wake(self) -> None:
        # In the next turn: the append that woke us has its own response to send first, and more may
        # come in this turn.
        if not self._checking:
            self._checking = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._checking = False
        if self.response.done() or not self._may_be_enough():
            return
        if (response := self._fetch.response_if_due()) is not None:
            self.response.complete(response)
        else:
            self._watch()

    def _may_be_enough(self) -> bool:
        """True if the logs have grown by the missing bytes, or have changed otherwise."""
        if self._missing_bytes <= 1 or len(self._fetch.session.changed) > len(self._sizes):
            return True
        grown = 0
        for partition, size, epoch in self._sizes:
            if partition.leader_epoch != epoch or not partition.is_leader:
                return True
            grown += partition.log.size - size
        return grown >= self._missing_bytes

    def _expire(self) -> None:
        if not self.response.done():
            is_due = self._fetch.read()
            self.response.complete(self._fetch.response(expired=not is_due))

    def _force_complete(self) -> None:
        if not self.response.done():
            self._fetch.read()
            self.response.complete(self._fetch.response())

    def _on_end(self) -> None:
        self._timer.cancel()
        session = self._fetch.session
        if session.wake == self._wake:
            session.wake = None
        if not session.id:
            session.close()
