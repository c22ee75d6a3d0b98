"""A follower's fetch session with one leader (KIP-227), without its connection: what to ask for next, and what an answer is about.

The session holds every partition that is copied from there; a request names those whose offset has changed since the last one. A partition that
fails leaves the session for a while. One request waits at the leader at a time; a second one follows it only when something new is to be copied,
for which the leader hurries with the first. So an answer may be about an offset that is known already: such answers are passed over.
"""

from collections import deque
from typing import Final
from uuid import UUID

from ottla_broker.replication import following
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.replica_fetch import FetchResponse, FetchResponsePartition, Request, Wanted

NO_SESSION: Final = (0, 0)
LOST: Final = frozenset({ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch})
_MAX_INT32 = 2**31 - 1


class Followed:
    """A partition that is fetched here. `since`: the number of the request that named it last, with offset `asked`. `not_before_s`: it failed, or
    is throttled; `pause_s`: for how long, when it failed last. `lag`: records that the leader's high watermark is ahead."""

    __slots__ = ("asked", "epoch", "in_session", "lag", "not_before_s", "partition", "pause_s", "since")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.in_session = False
        self.since = 0
        self.asked = 0
        self.lag = 0
        self.not_before_s = 0.0
        self.pause_s = 0.0

    @property
    def key(self) -> tuple[UUID, int]:
        return self.partition.topic_id, self.partition.partition


class FollowerSession:
    def __init__(self) -> None:
        self.followed: dict[tuple[UUID, int], Followed] = {}
        self.rests_until_s = 0.0  # when the first of those that rest may be asked for again; 0: none rests
        self._changed: dict[Followed, None] = {}  # to be named in the next request
        self._forgotten: list[tuple[UUID, int]] = []
        self._next = NO_SESSION  # id and epoch of the next request
        self._numbers = 0  # requests made
        self._in_flight: deque[int] = deque()
        self._urgent = False

    @property
    def waits(self) -> bool:
        """Whether a request is under way."""
        return bool(self._in_flight)

    # --- what is followed

    def follow(self, partition: Partition) -> bool:
        """From now on, or anew in another leader epoch; false when it is so already."""
        key = (partition.topic_id, partition.partition)
        known = self.followed.get(key)
        if known is not None and known.partition is partition:
            if known.epoch == partition.leader_epoch:
                return False
            known.epoch, known.pause_s, known.not_before_s = partition.leader_epoch, 0.0, 0.0
        else:
            known = self.followed[key] = Followed(partition)
        self.hurry(known)
        return True

    def forget(self, partition: Partition) -> None:
        known = self.followed.get((partition.topic_id, partition.partition))
        if known is not None and known.partition is partition:
            del self.followed[known.key]
            self._leave(known)

    def follows(self, known: Followed) -> bool:
        return self.followed.get(known.key) is known

    def ask_on(self, known: Followed) -> None:
        """Its log has moved: the next request says so."""
        self._changed[known] = None

    def hurry(self, known: Followed) -> None:
        """To be asked for although a request waits."""
        known.not_before_s = 0.0
        self._changed[known] = None
        self._urgent = True

    def rest(self, known: Followed, until_s: float) -> None:
        """Out of the session until then."""
        self._leave(known)
        known.not_before_s = until_s
        self._changed[known] = None

    def rest_is_over(self) -> None:
        self.rests_until_s = 0.0  # the next request looks who rests on
        self._urgent = True

    def _leave(self, known: Followed) -> None:
        self._changed.pop(known, None)
        if known.in_session:
            known.in_session = False
            self._forgotten.append(known.key)

    # --- asking and hearing

    def begin(self) -> None:
        """On a new connection, or when the leader knows the session no more: everything is asked for."""
        self._in_flight.clear()
        self._begin()

    def _begin(self) -> None:
        self._next = NO_SESSION
        self._forgotten.clear()
        for known in self.followed.values():
            known.in_session = False
            self._changed[known] = None

    def next_request(self, now_s: float, request: Request, most_bytes: int) -> Request | None:
        """`request` with what is to be asked for now, if anything is that is not being asked for already. `most_bytes`: of a partition."""
        if self._in_flight and (len(self._in_flight) > 1 or not self._urgent or self._next == NO_SESSION):
            return None
        topics = self._take_changed(now_s, most_bytes) if self._changed else {}
        if not topics and (self._in_flight or self._next == NO_SESSION):
            return None
        self._urgent = False
        self._numbers += 1
        for topic, wanted in topics.items():
            for one in wanted:
                known = self.followed[topic, one.partition]
                known.since, known.asked, known.in_session = self._numbers, one.offset, True
        request.topics = topics.items()
        # The leader takes out what is forgotten last: what is back already must not be among it.
        gone = [(topic, index) for topic, index in self._forgotten if not self._is_back(topic, index)]
        request.forgotten = [(topic, (index,)) for topic, index in gone]
        self._forgotten.clear()
        request.session_id, request.session_epoch = self._next
        if request.session_id:
            self._next = request.session_id, request.session_epoch % _MAX_INT32 + 1
        self._in_flight.append(self._numbers)
        return request

    def _is_back(self, topic: UUID, index: int) -> bool:
        known = self.followed.get((topic, index))
        return known is not None and known.in_session

    def _take_changed(self, now_s: float, most_bytes: int) -> dict[UUID, list[Wanted]]:
        changed, self._changed = self._changed, {}
        self.rests_until_s = 0.0
        topics: dict[UUID, list[Wanted]] = {}
        for known in changed:
            if known.not_before_s > now_s:
                self._changed[known] = None
                if not self.rests_until_s or known.not_before_s < self.rests_until_s:
                    self.rests_until_s = known.not_before_s
            else:
                topics.setdefault(known.partition.topic_id, []).append(following.wanted(known.partition, most_bytes))
        return topics

    def heard(self, response: FetchResponse) -> list[tuple[Followed, FetchResponsePartition]]:
        """What of the next answer is to be taken."""
        number = self._in_flight.popleft()
        if response.error in LOST:
            if not self._in_flight:  # else the other answer will say the same
                self._begin()
            return []
        taken = [
            (known, got)
            for got in response.partitions
            if (known := self.followed.get((got.topic, got.partition))) is not None
            and known.in_session
            and number >= known.since
            and (not got.records or known.asked == known.partition.log.end)
        ]
        if self._next == NO_SESSION:
            if response.session_id:
                self._next = response.session_id, 1
            else:
                self._begin_again_after(response)
        return taken

    def _begin_again_after(self, response: FetchResponse) -> None:
        """The leader remembers no session: everything is asked for every time."""
        for got in response.partitions:
            known = self.followed.get((got.topic, got.partition))
            if known is not None:
                known.in_session = False
                self._changed[known] = None
