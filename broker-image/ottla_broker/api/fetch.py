"""Fetch (1), versions 4–18.

- Answers whole batches as they lie in the log, from the batch that holds the offset; the first batch is answered
  even above the size limits (rule 11). Limits: per partition, of the request, and `fetch.max.bytes`.
- With less than `min_bytes` there, it waits until an append brings them or `max_wait` is over, and costs nothing
  meanwhile (`fetch_waiting`).
- read_committed sees only what lies before the last stable offset, with the list of aborted transactions (rule 7).
- Followers are answered in `follower_fetch`. A replica id of −2 stands for a tool that compares replicas: any of them answers, to its log's end.
- Sessions (v7, KIP-227) are in `fetch_sessions`. v9 checks leader epochs, v11 may name a nearer replica (KIP-392),
  v13 names topics by id (rule 13), v16 tells who leads instead (KIP-951).
"""

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from ottla_broker.api.fetch_reading import NotYet, read_for_client, read_to_the_end, send_to
from ottla_broker.api.fetch_sessions import FetchSessions, Session
from ottla_broker.api.fetch_waiting import Wait
from ottla_broker.api.follower_fetch import FollowerFetching
from ottla_broker.api.leader_hints import addresses_of, leader_of
from ottla_broker.api.told_again import ToldAgain
from ottla_broker.config import (
    FETCH_MAX_BYTES,
    LEADER_REPLICATION_THROTTLED_RATE,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    REPLICA_SELECTOR_CLASS,
)
from ottla_broker.metadata.metadata_fetch import METADATA_TOPIC_ID
from ottla_broker.replication.replica_selector import chooses_by_rack, nearer_replica
from ottla_broker.replication.throttle import Throttle
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import Buffers, Reply, RequestContext
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch import (
    BY_ID,
    CONSUMER,
    DEBUGGER,
    FetchRequest,
    FetchRequestPartition,
    FetchResponsePartition,
    Topic,
    write_fetch_response,
)
from ottla_broker.wire.leader_fetch import VERSION as FOLLOWERS_VERSION
from ottla_broker.wire.leader_fetch import read_request

API = Api(ApiKey.FETCH, versions=(4, 18), flexible=12)

if TYPE_CHECKING:
    from ottla_broker.broker import Broker
    from ottla_broker.replication.partition import Partition

Found = list[tuple[Topic, FetchResponsePartition]]


class Fetching:
    """The handler, with the sessions it remembers."""

    def __init__(self, broker: "Broker") -> None:
        self.sessions = FetchSessions(
            lambda: broker.config(MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS),
            asyncio.get_running_loop().time,
            broker.runtime.random.randrange,
        )
        self.told = ToldAgain()
        self.by_rack = chooses_by_rack(broker.config(REPLICA_SELECTOR_CLASS))
        self._followers = FollowerFetching(
            Throttle(lambda: broker.config(LEADER_REPLICATION_THROTTLED_RATE), asyncio.get_running_loop().time),
            broker.runtime.random.randrange,
            prompt=self.by_rack,
        )

    def __call__(self, context: RequestContext, frame: bytearray, header: RequestHeader, room: int) -> Reply:
        if context.connection.is_follower and header.version == FOLLOWERS_VERSION:
            asked = read_request(frame, header)
            if asked.replica >= 0:
                return self._followers(context, asked, header.correlation_id)
        request = context.connection.fetches.read(frame, header)
        if request.partitions and request.partitions[0].topic == METADATA_TOPIC_ID:
            from ottla_broker.requests.fetch_metadata_log import (
                fetch_metadata_log,  # a broker that is alone needs it not
            )

            return fetch_metadata_log(context, frame, header)
        if request.replica >= 0 and header.version == FOLLOWERS_VERSION:
            return self._first_of_follower(context, frame, header)
        try:
            session, incremental = self.sessions.session_of(request, by_ids=header.version >= BY_ID)
        except KafkaError as reason:
            return write_fetch_response(header.version, header.correlation_id, (), error=reason.code)
        limit = min(request.max_bytes, context.broker.config(FETCH_MAX_BYTES), room)
        fetch = Fetch(self, context, header, request, limit, session, incremental)
        return fetch.answer() or Wait(fetch).future

    def _first_of_follower(self, context: RequestContext, frame: bytearray, header: RequestHeader) -> Reply:
        """From now on the connection is known as a follower's."""
        if not (
            context.authorizer.allows_everything or context.is_authorized(Operation.cluster_action, Resource.cluster())
        ):
            refused = ErrorCode.cluster_authorization_failed
            return write_fetch_response(header.version, header.correlation_id, (), error=refused)
        context.connection.is_follower = True
        return self._followers(context, read_request(frame, header), header.correlation_id)


class Fetch:
    """One fetch request. `read` may be called again until there is enough."""

    __slots__ = (
        "_fetching",
        "_incremental",
        "_not_yet",
        "_sizes",
        "context",
        "found",
        "header",
        "limit",
        "partitions",
        "request",
        "session",
    )

    def __init__(
        self,
        fetching: Fetching,
        context: RequestContext,
        header: RequestHeader,
        request: FetchRequest,
        limit: int,
        session: Session | None,
        incremental: bool,
    ) -> None:
        self._fetching = fetching
        self.context = context
        self.header = header
        self.request = request
        self.limit = limit
        self.session = session
        self._incremental = incremental
        self.found: Found = []
        self.partitions: list[Partition] = []  # those that may bring more
        self._sizes: list[tuple[Partition, int]] = []  # bytes read of each, to be counted when they are sent
        self._not_yet: list[FetchResponsePartition] = []

    def answer(self) -> Buffers | None:
        """The response if there is enough to answer, else None: an error, `min_bytes`, or nothing to wait for."""
        if (now := self.now()) is not None:
            return now
        request = self.request
        if request.max_wait_ms <= 0:
            return self.response(over=True)
        if self.session is None and not request.partitions:
            return self.response()
        return None

    def now(self) -> Buffers | None:
        """The response if what is there should be answered now."""
        if self._is_plain and (again := self._fetching.told.answer(self)) is not None:
            return again
        return self.response() if self.read() else None

    @property
    def _is_plain(self) -> bool:
        """Whether whoever asks the same of the same partition is told the same: not in sessions, where everybody is told what they do not know yet."""
        request = self.request
        plain = self.session is None and len(request.partitions) == 1 and request.replica == CONSUMER
        return plain and not self._fetching.by_rack

    def read(self) -> bool:
        """Reads what is there; true when it should be answered now."""
        size, urgent = 0, False
        self.found = []
        self.partitions = []
        self._sizes = []
        self._not_yet = []
        for wanted in self.request.partitions if self.session is None else self.session.wanted():
            fetched = self._read(wanted, self.limit - size, first=size == 0)
            size += len(fetched.records)
            if fetched.error is not ErrorCode.none:
                urgent = urgent or fetched not in self._not_yet
            elif fetched.diverging is not None or fetched.preferred >= 0:
                urgent = True
            self.found.append((wanted.topic, fetched))
        return urgent or size >= self.request.min_bytes

    @property
    def size(self) -> int:
        return sum(len(fetched.records) for _, fetched in self.found)

    def _read(self, wanted: FetchRequestPartition, left: int, *, first: bool) -> FetchResponsePartition:
        try:
            partition = self.find(wanted)
            most = min(left, wanted.max_bytes)
            if self.request.replica >= 0:
                raise KafkaError(ErrorCode.not_leader_or_follower, "no follower of ours speaks this version")
            if self.request.replica == DEBUGGER:
                fetched = read_to_the_end(partition, wanted, most, first=first)
            elif (nearer := self._nearer(partition, wanted)) is not None:
                fetched = send_to(nearer, partition, wanted)
            else:
                fetched = read_for_client(partition, self.request, wanted, most, first=first)
        except NotYet as reason:
            fetched = FetchResponsePartition(wanted.partition, reason.code)
            self._not_yet.append(fetched)
            return fetched
        except KafkaError as reason:
            leader = leader_of(self.context, wanted, reason.code) if self.request.replica < 0 else None
            return FetchResponsePartition(wanted.partition, reason.code, leader=leader)
        if fetched.records:
            self._sizes.append((partition, len(fetched.records)))
        return fetched

    def find(self, wanted: FetchRequestPartition) -> "Partition":
        """The partition, watched in case that it has to be waited for."""
        partitions = self.context.broker.partitions
        if isinstance(wanted.topic, UUID):
            topic, topic_id = self._name_of(wanted, wanted.topic), wanted.topic
        else:
            topic, topic_id = wanted.topic, None
        if not (
            self.context.authorizer.allows_everything
            or self.context.is_authorized(Operation.read, Resource.topic(topic))
        ):
            raise KafkaError(ErrorCode.topic_authorization_failed)
        hosted = partitions.get(topic, wanted.partition)
        if hosted is not None:
            self.partitions.append(hosted)
        if self.session is not None:
            self.session.found(wanted, topic, hosted)
        may_follow = self._fetching.by_rack or self.request.replica == DEBUGGER
        find = partitions.replica if may_follow and hosted and hosted.is_follower else partitions.leader
        return find(topic, wanted.partition, epoch=wanted.leader_epoch, topic_id=topic_id)

    def _name_of(self, wanted: FetchRequestPartition, topic_id: UUID) -> str:
        """UNKNOWN_TOPIC_ID; of a topic that a session has known, what its name stands for now: UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID."""
        broker = self.context.broker
        try:
            return broker.partitions.topic_name(topic_id)
        except KafkaError:
            known = self.session.name_of(wanted) if self.session is not None else None
            if known is None:
                raise
            anew = broker.image.topics.get(known)
            there = anew is not None and wanted.partition in anew.partitions
            code = ErrorCode.inconsistent_topic_id if there else ErrorCode.unknown_topic_or_partition
            raise KafkaError(code, f"topic {known!r} has been deleted") from None

    def _nearer(self, partition: "Partition", wanted: FetchRequestPartition) -> int | None:
        """The replica that a consumer should rather ask (KIP-392)."""
        rack, state, brokers = self.request.rack, partition.registration, self.context.broker.image.brokers
        if rack is None or not (self._fetching.by_rack and partition.is_leader):
            return None
        return nearer_replica(rack, wanted.offset, state.leader, state.isr, partition.followers, brokers)

    def response(self, *, over: bool = False) -> Buffers:
        """`over`: nothing is waited for any more, so that what is not there yet is told as an error."""
        for partition, size in self._sizes:
            partition.traffic.bytes_out += size
        if not over:
            for fetched in self._not_yet:
                fetched.error, fetched.more = ErrorCode.none, True
        session = self.session
        topics: dict[Topic, list[FetchResponsePartition]] = {}
        for topic, fetched in self.found:
            # A full answer too is remembered as told.
            news = session is None or session.is_news(topic, fetched)
            if news or not self._incremental:
                topics.setdefault(topic, []).append(fetched)
        buffers = write_fetch_response(
            self.header.version,
            self.header.correlation_id,
            list(topics.items()),
            session_id=0 if session is None else session.id,
            addresses=addresses_of(self.context, (f.leader for _, f in self.found if f.leader is not None)),
        )
        if self._sizes and self._is_plain:
            self._fetching.told.remember(self, self._sizes[0][0], self.found[0][1], buffers)
        return buffers
