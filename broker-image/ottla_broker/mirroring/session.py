"""A consumer's fetch session (KIP-227) with one broker of a source, without its connection: what to ask for next, and what an answer is about.

Topics are named by id (Fetch from version 13 on, Apache Kafka 3.1): the source itself refuses what is another topic of the same name. One request
is under way at a time; it names the partitions whose offset has changed since the last. What rests is out of the session.
"""

from collections.abc import Iterable
from typing import Final, TypeVar, cast
from uuid import UUID

from kio.schema.fetch.v15.request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kio.static.primitive import i8, i32, i64

from ottla_broker.mirroring.mirror_config import FetchLimits
from ottla_broker.mirroring.mirrored_partition import MirroredPartition
from ottla_broker.wire.client import to_timedelta_field
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.replica_fetch import FetchResponse, FetchResponsePartition

LOST: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)
NO_SESSION: Final = (0, 0)
_MAX_INT32: Final = 2**31 - 1
READ_UNCOMMITTED: Final = i8(0)
READ_COMMITTED: Final = i8(1)
T = TypeVar("T")


class SourceSession:
    def __init__(self) -> None:
        self.followed: dict[tuple[UUID, int], MirroredPartition] = {}
        self._changed: dict[MirroredPartition, None] = {}
        self._named: dict[tuple[UUID, int], None] = {}  # what the source knows of the session
        self._next = NO_SESSION

    def follow(self, copy: MirroredPartition) -> None:
        self.followed[copy.key] = copy
        self._changed[copy] = None

    def forget(self, copy: MirroredPartition) -> None:
        if self.followed.get(copy.key) is copy:
            del self.followed[copy.key]
        self._changed.pop(copy, None)

    def follows(self, copy: MirroredPartition) -> bool:
        return self.followed.get(copy.key) is copy

    def ask_on(self, copy: MirroredPartition) -> None:
        """Its log has moved, or its rest begins."""
        if self.follows(copy):
            self._changed[copy] = None

    def begin(self) -> None:
        """On a new connection, or when the source knows the session no more."""
        self._next = NO_SESSION
        self._named.clear()
        self._changed = dict.fromkeys(self.followed.values())

    def next_request(self, now_s: float, pace: FetchLimits) -> FetchRequest | None:
        """None when nothing is to be asked for: nothing is followed, or everything rests."""
        asked = [copy for copy in self._changed if copy.retry_at_s <= now_s]
        resting = [copy for copy in self._changed if copy.retry_at_s > now_s]
        if not asked and len(resting) == len(self.followed):
            return None
        self._changed = dict.fromkeys(resting)
        held = self.followed.keys() - {copy.key for copy in resting}
        gone = [key for key in self._named if key not in held]
        for key in gone:
            del self._named[key]
        for copy in asked:
            copy.requested_offset = copy.position
            self._named[copy.key] = None
        session_id, epoch = self._next
        return FetchRequest(
            max_wait=to_timedelta_field(pace.max_wait_ms / 1000),
            min_bytes=i32(1),
            max_bytes=cast(i32, pace.max_bytes),
            isolation_level=READ_COMMITTED if pace.reads_committed else READ_UNCOMMITTED,
            session_id=cast(i32, session_id),
            session_epoch=cast(i32, epoch),
            topics=tuple(
                FetchTopic(topic_id=topic, partitions=tuple(_wanted(copy, pace) for copy in copies))
                for topic, copies in _by_topic((copy.source_id, copy) for copy in asked).items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic, partitions=tuple(cast("list[i32]", indexes)))
                for topic, indexes in _by_topic(gone).items()
            )
            if session_id
            else (),
        )

    def next_rest_s(self) -> float | None:
        """When the first of those that rest may be asked for again."""
        return min((copy.retry_at_s for copy in self._changed), default=None)

    def heard(self, response: FetchResponse) -> list[tuple[MirroredPartition, FetchResponsePartition]]:
        if response.error in LOST:
            self.begin()
            return []
        if not response.session_id:
            self.begin()  # the source remembers no session: everything is asked for every time
        else:
            _, epoch = self._next
            self._next = response.session_id, epoch % _MAX_INT32 + 1
        return [
            (copy, got)
            for got in response.partitions
            if (copy := self.followed.get((got.topic, got.partition))) is not None
        ]


def _wanted(copy: MirroredPartition, pace: FetchLimits) -> FetchPartition:
    return FetchPartition(
        partition=cast(i32, copy.partition.partition),
        fetch_offset=cast(i64, copy.requested_offset),
        last_fetched_epoch=cast(i32, copy.last_record_epoch),
        partition_max_bytes=cast(i32, pace.max_partition_bytes),
    )


def _by_topic(pairs: Iterable[tuple[UUID, T]]) -> dict[UUID, list[T]]:
    found: dict[UUID, list[T]] = {}
    for topic, one in pairs:
        found.setdefault(topic, []).append(one)
    return found
