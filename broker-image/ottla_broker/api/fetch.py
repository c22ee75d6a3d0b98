"""Fetch (1), versions 4–18, of consumers and of followers.

- Answers whole batches as they lie in the log, from the batch that holds the offset; the first
  batch is answered even above the size limits (rule 11). Limits: per partition, of the request, and
  `fetch.max.bytes`.
- With less than `min_bytes` there, it waits until an append brings them or `max_wait` is over. It
  does not wait while there are records that did not fit: `min_bytes` counts no further than the
  limits.
- read_committed sees only what lies before the last stable offset, with the list of aborted
  transactions (rule 7).
- Followers (v17) read to the log's end and acknowledge by their offsets; a follower that knows a
  newer leader epoch than this broker waits for this broker's metadata. A replica id of −2 is a tool
  that compares replicas: any replica answers it.
- v7 has sessions (KIP-227), v9 leader epochs, v11 the nearest replica (KIP-392), v13 topic ids
  (rule 13), v16 current leaders (KIP-951)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla_broker.broker import Broker
from ottla_broker.config import (
    FETCH_MAX_BYTES,
    LEADER_REPLICATION_THROTTLED_RATE,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    REPLICA_SELECTOR_CLASS,
)
from ottla_broker.metadata.metadata_fetch import METADATA_TOPIC_ID
from ottla_broker.replication.fetch_reading import (
    NotYet,
    Reader,
    RefusedReader,
    ReplicaReader,
    end_offset,
    read_committed_records,
    read_to_log_end,
    without_records,
)
from ottla_broker.replication.fetch_response_cache import FetchResponseCache, ResponseKey, with_correlation_id
from ottla_broker.replication.fetch_sessions import CachedPartition, FetchSession, FetchSessionCache
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_selector import is_rack_aware, select_replica
from ottla_broker.replication.throttle import Throttle
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import Buffers, DelayedFetchResponse, Reply, RequestContext
from ottla_broker.requests.current_leader import WRONG_BROKER_ERRORS, current_leader, leader_endpoints
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import (
    CONSUMER,
    DEBUGGER,
    RACK_SINCE,
    TOPIC_IDS_SINCE,
    FetchRequest,
    read_fetch_request,
)
from ottla_broker.wire.fetch_response import FetchResponsePartition, write_fetch_response

API = Api(
    ApiKey.FETCH,
    versions=(4, 18),
    flexible=12,
    rights=(
        Right(Operation.read, ResourceType.topic, when="of consumers"),
        Right(
            Operation.cluster_action, ResourceType.cluster, when="of followers", refused="TOPIC_AUTHORIZATION_FAILED"
        ),
    ),
)

REPLICA_VERSION: Final = 17
CORRELATION_ID_AT: Final = 4  # in a request without its size
MAX_REPLICA_BYTES: Final = 4 << 20  # as much as the loop can read and send between two requests of clients


class FetchHandler:
    """The handler, with the sessions and the last response that it remembers."""

    def __init__(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        self.by_rack = is_rack_aware(broker.config(REPLICA_SELECTOR_CLASS))
        self.sessions = FetchSessionCache(
            lambda: broker.config(MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS),
            loop.time,
            broker.runtime.random.randrange,
            self.by_rack,
        )
        self._response_cache = FetchResponseCache()
        self._throttle = Throttle(lambda: broker.config(LEADER_REPLICATION_THROTTLED_RATE), loop.time)
        self._loop = loop

    def __call__(self, context: RequestContext, frame: bytearray, header: RequestHeader, room: int) -> Reply:
        repeated = context.connection.last_fetch
        if isinstance(repeated, RepeatedFetch) and (fetch := repeated.restart(frame, header)) is not None:
            fetch.context = context
            fetch.limit = self._consumer_limit(context, fetch.request, room)
            return self._respond(fetch)
        request = read_fetch_request(frame, header)
        if request.partitions and request.partitions[0].topic == METADATA_TOPIC_ID:
            # A broker that is alone never needs it: its start is shorter.
            from ottla_broker.requests.fetch_metadata_log import fetch_metadata_log

            return fetch_metadata_log(context, frame, header)
        try:
            session, incremental = self.sessions.session_for(request, by_ids=header.version >= TOPIC_IDS_SINCE)
        except KafkaError as reason:
            return write_fetch_response(header.version, header.correlation_id, (), error=reason.code)
        if request.replica >= 0:
            reader = self._replica_reader(context, header.version, session)
            fetch = Fetch(context, header.correlation_id, request, session, reader, True, self.sessions.end)
            fetch.limit = min(request.max_bytes, MAX_REPLICA_BYTES)
            return self._respond(fetch)
        if session.id and not context.authorizer.allows_everything:
            session.read_as((context.connection.principal, context.connection.host, context.authorizer.generation))
        consumer = ConsumerReader(context, request, self.by_rack)
        fetch = Fetch(context, header.correlation_id, request, session, consumer, incremental, self.sessions.end)
        fetch.limit = self._consumer_limit(context, request, room)
        if not session.id and len(request.partitions) == 1 and request.replica == CONSUMER:
            context.connection.last_fetch = RepeatedFetch(frame, header, fetch)
            if not self.by_rack:
                fetch.response_cache = self._response_cache
        return self._respond(fetch)

    def _replica_reader(self, context: RequestContext, version: int, session: FetchSession) -> Reader:
        if not (context.authorizer.allows_everything or context.is_authorized(Operation.cluster_action, CLUSTER)):
            return RefusedReader()
        context.connection.is_follower = version == REPLICA_VERSION
        return ReplicaReader(context.broker.partitions, session, self._throttle)

    def _consumer_limit(self, context: RequestContext, request: FetchRequest, room: int) -> int:
        return min(request.max_bytes, context.broker.config(FETCH_MAX_BYTES), room)

    def _respond(self, fetch: "Fetch") -> Reply:
        response = fetch.response_if_due()
        if response is not None:
            return response
        if fetch.can_wait():
            return DelayedFetch(fetch, self._loop).response
        return fetch.response(expired=True)


@dataclass(slots=True, eq=False)
class ConsumerReader:
    """A consumer reads what is committed of the topics that it may read, from the leader or from a
    replica in its rack."""

    _context: RequestContext
    _request: FetchRequest
    _by_rack: bool

    def read(self, cached: CachedPartition, max_bytes: int, *, first: bool) -> FetchResponsePartition:
        request = self._request
        partition = self.find(cached)
        max_bytes = min(max_bytes, cached.request.max_bytes)
        if request.replica == DEBUGGER:
            return read_to_log_end(partition, cached, max_bytes, first=first)
        if self._by_rack and request.rack is not None and partition.is_leader:
            state, brokers = partition.registration, self._context.broker.image.brokers
            offset = cached.request.offset
            nearest = select_replica(request.rack, offset, state.leader, state.isr, partition.leader.followers, brokers)
            if nearest is not None:
                data = without_records(partition, cached.request)
                data.preferred = nearest
                return data
        return read_committed_records(partition, cached, request.isolation, max_bytes, first=first)

    def is_due(self, cached: CachedPartition, data: FetchResponsePartition) -> bool:
        return data.diverging is not None or data.preferred >= 0

    def has_records_behind(self, cached: CachedPartition, records: Buffer) -> bool:
        partition, request = cached.partition, self._request
        if partition is None:
            return False
        log_end = request.replica == DEBUGGER
        end = partition.log.end if log_end else partition.readable_end(request.isolation)
        return end_offset(records) < end

    def count_sent(self, partition: Partition, size: int) -> None:
        partition.traffic.bytes_out += size

    def find(self, cached: CachedPartition) -> Partition:
        partitions, request = self._context.broker.partitions, cached.request
        if isinstance(request.topic, UUID):
            topic, topic_id = self._topic_name(cached, request.topic), request.topic
        else:
            topic, topic_id = request.topic, None
        self._check_authorized(topic)
        context = self._context
        hosted = partitions.get(topic, request.partition)
        if hosted is not cached.partition:
            cached.set_partition(hosted)
        may_follow = context.version >= RACK_SINCE or self._request.replica == DEBUGGER
        find = partitions.replica if may_follow and hosted is not None and hosted.is_follower else partitions.leader
        return find(topic, request.partition, epoch=request.leader_epoch, topic_id=topic_id)

    def _check_authorized(self, topic: str) -> None:
        context = self._context
        if not (context.authorizer.allows_everything or context.is_authorized(Operation.read, Resource.topic(topic))):
            raise KafkaError(ErrorCode.topic_authorization_failed)

    def _topic_name(self, cached: CachedPartition, topic_id: UUID) -> str:
        """Raises UNKNOWN_TOPIC_ID; of a topic that the session has known:
        UNKNOWN_TOPIC_OR_PARTITION, or INCONSISTENT_TOPIC_ID where a new topic has that name.
        """
        broker = self._context.broker
        try:
            cached.topic_name = broker.partitions.topic_name(topic_id)
        except KafkaError:
            if cached.topic_name is None:
                raise
            self._check_authorized(cached.topic_name)
            successor = broker.image.topics.get(cached.topic_name)
            exists = successor is not None and cached.request.partition in successor.partitions
            code = ErrorCode.inconsistent_topic_id if exists else ErrorCode.unknown_topic_or_partition
            raise KafkaError(code, f"topic {cached.topic_name!r} has been deleted") from None
        return cached.topic_name


@dataclass(slots=True, eq=False)
class Fetch:
    """One fetch request. It is read as often as something changes, until there is enough to answer.

    `limit`: bytes of records in the response; `response_cache`: where identical fetches get
    identical responses, which they do not in sessions, whose responses are incremental."""

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
        """Read the available records. True if the response is due: `min_bytes`, an error, or the
        reader's own reason.
        """
        size, due, limit, reader = 0, False, self.limit, self._reader
        found = self._found = []
        self._not_yet = []
        for cached in self.session.changed:
            try:
                data = reader.read(cached, limit - size, first=size == 0)
            except KafkaError as reason:
                data = FetchResponsePartition(cached.request.topic, cached.request.partition, reason.code)
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
        """True if a partition has records that were not read (they did not fit, beside another
        partition's or behind its own, or they lie in the next segment), or if the fetcher catches
        up from an older segment, as in Kafka."""
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
        wanted = sum(cached.request.max_bytes for cached in self.session.changed)
        return min(self.request.min_bytes, self.limit, wanted) - self.size

    def response(self, *, expired: bool = False) -> Buffers:
        """What the last read found. `expired`: the fetch waits no longer, so what is not there yet
        is an error.
        """
        session, partitions, leaders = self.session, [], []
        quota = None if session.is_replica else self.context.quota
        if quota is not None and not quota.admits_fetch(self.size):
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
                leaders.append(data.leader)
            if session.id:
                cached.sent(data)
        buffers = write_fetch_response(
            self.context.version,
            self.correlation_id,
            partitions,
            session_id=session.id,
            endpoints=leader_endpoints(self.context, leaders) if leaders else (),
            throttle_ms=0 if quota is None else quota.throttle_ms,
        )
        if self.response_cache is not None and self.size and quota is None:
            ((cached, _),) = self._found
            assert cached.partition is not None
            self.response_cache.put(self._cache_key(cached), cached.partition, self.size, buffers)
        self._found = []  # a fetch that is kept for its repetition keeps no records
        return buffers

    def _throttled_response(self) -> Buffers:
        """Empty. A client that has begun a session begins another one, as with Kafka (KIP-219)."""
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
        known = cache.find(self._cache_key(cached), self.request.min_bytes)
        if known is None:
            return None
        try:
            if self._reader.find(cached) is not known.partition:
                return None
        except KafkaError:
            return None
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


class RepeatedFetch:
    """The last fetch of a connection, if it named one partition without a session. A consumer's
    next one mostly differs only in its offset and correlation id, and is not parsed again: twenty
    consumers cost 1.37 s of processor time per GB instead of 1.53 (bench line `fan-out`, medians of
    four)."""

    __slots__ = ("_fetch", "_front", "_offset_at", "_rest", "_tail")

    def __init__(self, frame: bytearray, header: RequestHeader, fetch: Fetch) -> None:
        self._fetch = fetch
        self._offset_at = at = fetch.request.offset_at
        self._front = bytes(frame[:CORRELATION_ID_AT])
        self._rest = bytes(frame[CORRELATION_ID_AT + 4 : at])
        self._tail = bytes(frame[at + 8 :])

    def restart(self, frame: bytearray, header: RequestHeader) -> Fetch | None:
        """The fetch with the frame's offset; None for another one."""
        fetch, at, tail = self._fetch, self._offset_at, self._tail
        if (
            len(frame) != at + 8 + len(tail)
            or not frame.startswith(self._front)
            or not frame.startswith(self._rest, CORRELATION_ID_AT + 4)
            or not frame.endswith(tail)
            or fetch.session.wake is not None
        ):
            return None
        (cached,) = fetch.session.changed
        cached.request.offset = int.from_bytes(frame[at : at + 8], signed=True)
        fetch.correlation_id = header.correlation_id
        return fetch


class DelayedFetch:
    """A fetch that waits for records: one timer, and callbacks among its partitions' waiters.
    Nothing of it remains when it is answered or its connection is closed."""

    __slots__ = ("_checking", "_fetch", "_loop", "_missing", "_sizes", "_timer", "response")

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
        self._missing = 1 if fetch.request.min_bytes <= 1 else fetch.missing_bytes
        self._sizes: list[tuple[Partition, int, int]] = []
        if self._missing > 1:
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
        """True if the logs have grown by what is missing, or something other than growth has
        happened.
        """
        if self._missing <= 1 or len(self._fetch.session.changed) > len(self._sizes):
            return True
        grown = 0
        for partition, size, epoch in self._sizes:
            if partition.leader_epoch != epoch or not partition.is_leader:
                return True
            grown += partition.log.size - size
        return grown >= self._missing

    def _expire(self) -> None:
        if not self.response.done():
            enough = self._fetch.read()
            self.response.complete(self._fetch.response(expired=not enough))

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
