"""Fetch (1), versions 4–18.

- Answers whole batches as they lie in the log, from the batch that holds the offset; the first batch is answered
  even above the size limits (rule 11). Limits: per partition, of the request, and `fetch.max.bytes`.
- With less than `min_bytes` there, it waits until an append brings them or `max_wait` is over, and costs nothing
  meanwhile.
- read_committed sees only what lies before the last stable offset, with the list of aborted transactions (rule 7).
- Sessions (v7, KIP-227) are in `fetch_sessions`. v9 checks leader epochs, v11 could name a nearer replica and never
  does, v13 names topics by id (rule 13), v16 tells who leads instead.
- Left out: answers to followers (last fetched epoch, fetch from a follower).
"""

import asyncio
from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla_broker.api.context import Buffers, Context, Reply
from ottla_broker.api.fetch_metadata_log import fetch_metadata_log, is_wanted
from ottla_broker.api.fetch_sessions import FetchSessions, Session
from ottla_broker.config import FETCH_MAX_BYTES, MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch import CONSUMER, Fetched, FetchPartition, FetchRequest, Topic, read_fetch, write_fetch

if TYPE_CHECKING:
    from ottla_broker.broker import Broker
    from ottla_broker.replication.partition import Partition

READ_COMMITTED = 1
BY_ID = 13

Found = list[tuple[Topic, Fetched]]


class Fetching:
    """The handler, with the sessions it remembers."""

    def __init__(self, broker: "Broker") -> None:
        self.sessions = FetchSessions(
            lambda: broker.config(MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS),
            asyncio.get_running_loop().time,
            broker.runtime.random.randrange,
        )

    def __call__(self, context: Context, frame: bytearray, header: RequestHeader, room: int) -> Reply:
        request = read_fetch(frame, header)
        if is_wanted(request.partitions):
            return fetch_metadata_log(context, frame, header)
        try:
            session, incremental = self.sessions.session_of(request)
        except KafkaError as reason:
            return write_fetch(header.version, header.correlation_id, (), error=reason.code)
        wanted = request.partitions if session is None else session.wanted()
        limit = min(request.max_bytes, context.broker.config(FETCH_MAX_BYTES), room)
        fetch = Fetch(context, header, request, wanted, limit, session, incremental)
        return fetch.answer() or Wait(fetch).future


class Fetch:
    """One fetch request. `read` may be called again until there is enough."""

    __slots__ = (
        "_incremental",
        "_session",
        "_sizes",
        "context",
        "found",
        "header",
        "limit",
        "partitions",
        "request",
        "wanted",
    )

    def __init__(
        self,
        context: Context,
        header: RequestHeader,
        request: FetchRequest,
        wanted: Sequence[FetchPartition],
        limit: int,
        session: Session | None,
        incremental: bool,
    ) -> None:
        self.context = context
        self.header = header
        self.request = request
        self.wanted = wanted
        self.limit = limit
        self._session = session
        self._incremental = incremental
        self.found: Found = []
        self.partitions: list[Partition] = []  # those that may bring more
        self._sizes: list[tuple[Partition, int]] = []  # bytes read of each, to be counted when they are sent

    def answer(self) -> Buffers | None:
        """The response if there is enough to answer, else None: an error, `min_bytes`, or nothing to wait for."""
        request = self.request
        enough = self.read()
        if enough or request.max_wait_ms <= 0 or not self.wanted:
            return self.response()
        return None

    def read(self) -> bool:
        """Reads what is there; true when it should be answered now."""
        size, failed = 0, False
        self.found = []
        self.partitions = []
        self._sizes = []
        for wanted in self.wanted:
            fetched = self._read(wanted, self.limit - size, first=size == 0)
            size += len(fetched.records)
            failed = failed or fetched.error is not ErrorCode.none
            self.found.append((wanted.topic, fetched))
        return failed or size >= self.request.min_bytes

    @property
    def size(self) -> int:
        return sum(len(fetched.records) for _, fetched in self.found)

    def _read(self, wanted: FetchPartition, left: int, *, first: bool) -> Fetched:
        try:
            partition = find(self.context, wanted)
            return self._read_partition(partition, wanted, left, first=first)
        except KafkaError as reason:
            return Fetched(wanted.partition, reason.code)

    def _read_partition(self, partition: "Partition", wanted: FetchPartition, left: int, *, first: bool) -> Fetched:
        log, offset = partition.log, wanted.offset
        isolation, replica = self.request.isolation, self.request.replica
        if replica >= 0 and replica not in partition.state.replicas:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"broker {replica} has no replica of the partition")
        if not log.start <= offset <= log.end or wanted.last_fetched_epoch > log.epochs.latest():
            raise KafkaError(ErrorCode.offset_out_of_range)
        end = partition.readable_end(isolation, replica)
        self.partitions.append(partition)
        fetched = Fetched(wanted.partition, ErrorCode.none, log.high_watermark, log.last_stable_offset, log.start)
        if offset < end and (left > 0 or first):
            most = min(left, wanted.max_bytes)
            fetched.records = log.read(offset, most, up_to=end, at_least_one=first)
            self._sizes.append((partition, len(fetched.records)))
            if isolation == READ_COMMITTED and replica == CONSUMER:
                fetched.aborted = [(one.producer_id, one.first_offset) for one in log.aborted(offset, end)]
        if isolation == READ_COMMITTED and fetched.aborted is None:
            fetched.aborted = ()
        return fetched

    def response(self) -> Buffers:
        for partition, size in self._sizes:
            partition.traffic.bytes_out += size
        session = self._session
        topics: dict[Topic, list[Fetched]] = {}
        for topic, fetched in self.found:
            # A full answer too is remembered as told.
            news = session is None or session.is_news(topic, fetched)
            if news or not self._incremental:
                topics.setdefault(topic, []).append(fetched)
        return write_fetch(
            self.header.version,
            self.header.correlation_id,
            list(topics.items()),
            session_id=0 if session is None else session.id,
        )


def find(context: Context, wanted: FetchPartition) -> "Partition":
    partitions = context.broker.partitions
    topic = wanted.topic
    if isinstance(topic, UUID):
        name, topic_id = partitions.name_of(topic), topic
    else:
        name, topic_id = topic, None
    if not (context.authorizer.allows_everything or context.may(Operation.read, Resource.topic(name))):
        raise KafkaError(ErrorCode.topic_authorization_failed)
    return partitions.leader(name, wanted.partition, epoch=wanted.leader_epoch, topic_id=topic_id)


class Wait:
    """A fetch that waits: one timer, and one callback at each of its partitions. Nothing is left of it when it is
    answered or its connection is gone."""

    __slots__ = ("_checking", "_fetch", "_loop", "_missing", "_sizes", "_timer", "future")

    def __init__(self, fetch: Fetch) -> None:
        self._loop = asyncio.get_running_loop()
        self._fetch = fetch
        self._checking = False
        self.future: Future[Buffers] = self._loop.create_future()
        self.future.add_done_callback(self._clean_up)
        self._timer = self._loop.call_later(fetch.request.max_wait_ms / 1000, self._time_is_over)
        self._sizes: list[tuple[Partition, int, int]] = []
        self._watch()

    def _watch(self) -> None:
        fetch = self._fetch
        self._missing = fetch.request.min_bytes - fetch.size
        self._sizes = [(partition, partition.log.size, partition.leader_epoch) for partition in fetch.partitions]
        for partition, _, _ in self._sizes:
            partition.watch(self._woken)

    def _unwatch(self) -> None:
        for partition, _, _ in self._sizes:
            partition.unwatch(self._woken)

    def _woken(self) -> None:
        # Not at once: the append that woke us has its own answer to send first, and more may come in the same turn.
        if not self._checking:
            self._checking = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._checking = False
        if self.future.done() or not self._may_be_enough():
            return
        enough = self._fetch.read()
        if enough:
            self.future.set_result(self._fetch.response())
        else:
            self._unwatch()
            self._watch()

    def _may_be_enough(self) -> bool:
        """Whether the logs have grown by what is missing, or something other than growth has happened."""
        grown = 0
        for partition, size, epoch in self._sizes:
            if partition.leader_epoch != epoch or not partition.leads:
                return True
            grown += partition.log.size - size
        return grown >= self._missing or self._missing <= 1

    def _time_is_over(self) -> None:
        if not self.future.done():
            self._fetch.read()
            self.future.set_result(self._fetch.response())

    def _clean_up(self, future: Future[Buffers]) -> None:
        self._timer.cancel()
        self._unwatch()
