"""What the leader of a partition knows of its followers in one leader epoch, and what follows from it: pure.

- The high watermark is the smallest log end over the *maximal* ISR: the committed one, and whoever an ISR in flight to the controller would
  add (rule 3). A follower of which nothing was heard in this epoch holds it where it is.
- A follower outside of the ISR that has just caught up holds it too, for a moment: otherwise a busy leader would always be a little ahead of
  whoever wants to join.
- A follower leaves the ISR when for `replica.lag.time.max.ms` it has not reached what the leader's log held at the beginning of that time.
- It may join when its log reaches the high watermark and the start of the leader's epoch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError

UNKNOWN: Final = -1
JOINING_S: Final = 1.0
"""How long after its last fetch a follower that could join holds the high watermark."""


@dataclass(slots=True, eq=False)
class Follower:
    """`end`, `start`: of its log, by its last fetch. `broker_epoch`: of the life that fetched. Times by the loop's clock. `unheard`: (broker epoch,
    offset, log start) of the last fetch of a life that is not registered yet, as far as is known here."""

    broker: int
    log_end: int = UNKNOWN
    log_start: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    fetched_s: float = -inf
    caught_up_s: float = -inf  # when it had last reached our log's end
    leader_end: int = 0  # our log's end when it fetched last
    mark: int = UNKNOWN  # what it has to reach to be in time …
    marked_s: float = inf  # … from when on
    unheard: tuple[int, int, int] | None = None

    def fetched(self, offset: int, start: int, broker_epoch: int, leader_end: int, now_s: float) -> None:
        """It asks for records from `offset`: everything below is in its log. With `flush.messages=1`, on its disk."""
        if offset >= leader_end:
            self.caught_up_s = now_s
        elif offset >= self.leader_end:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.log_end, self.log_start, self.broker_epoch = offset, start, broker_epoch
        self.leader_end, self.fetched_s = leader_end, now_s

    def is_behind(self, leader_end: int) -> bool:
        """Looks whether it is; from a time when it is not, being late is counted anew."""
        if self.log_end >= leader_end:
            self.marked_s = inf
            return False
        return True

    def is_late(self, leader_end: int, now_s: float, lag_max_s: float) -> bool:
        """Looks at it now and then; true when it has been behind for too long."""
        if not self.is_behind(leader_end):
            return False
        if self.marked_s == inf or self.log_end >= self.mark:
            self.mark, self.marked_s = leader_end, now_s
        return now_s - self.marked_s >= lag_max_s

    def could_join(self, high_watermark: int, epoch_start: int) -> bool:
        return self.log_end >= high_watermark and self.log_end >= epoch_start

    @property
    def holds_until_s(self) -> float:
        """Until when it holds the high watermark although it is not in the ISR; it must have caught up a moment ago."""
        return self.fetched_s + JOINING_S if self.fetched_s - self.caught_up_s <= JOINING_S else -inf


class Followers:
    """Of one partition. `counted`: those in the maximal ISR; `outside`: the others. Both in the order of the replicas."""

    __slots__ = ("_all", "counted", "outside")

    def __init__(self) -> None:
        self._all: dict[int, Follower] = {}
        self.counted: Sequence[Follower] = ()
        self.outside: Sequence[Follower] = ()

    def __iter__(self) -> Iterator[Follower]:
        return iter(self._all.values())

    def get(self, broker: int) -> Follower | None:
        return self._all.get(broker)

    def record_fetch(
        self,
        broker: int,
        broker_epoch: int,
        offset: int,
        log_start: int,
        leader_end: int,
        now_s: float,
        is_registered: Callable[[int, int], bool],
    ) -> Follower | None:
        """The one that asks for records from `offset`; None while what it says does not count. NOT_LEADER_OR_FOLLOWER when it has no replica here, or when
        a later life of the broker has been heard of."""
        follower = self._all.get(broker)
        if follower is None or broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.not_leader_or_follower, f"broker {broker} of epoch {broker_epoch} is no follower here"
            )
        if broker_epoch != follower.broker_epoch and not is_registered(broker, broker_epoch):
            # Our metadata do not know this life yet: with its registration it may have left the ISR that we still see (rule 4).
            follower.unheard = broker_epoch, offset, log_start
            return None
        follower.unheard = None
        follower.fetched(offset, log_start, broker_epoch, leader_end, now_s)
        return follower

    def somebody_is_behind(self, leader_end: int) -> bool:
        """Of those that count. Looks at each: from when one is not, being late is counted anew."""
        return bool([one for one in self.counted if one.is_behind(leader_end)])

    def late(self, leader_end: int, now_s: float, lag_max_s: float) -> set[int]:
        """Those of them that have been behind for so long. Looks at each."""
        return {one.broker for one in self.counted if one.is_late(leader_end, now_s, lag_max_s)}

    def clear(self) -> None:
        self._all = {}
        self.counted = self.outside = ()

    def set_replicas(self, replicas: Iterable[int], maximal: Iterable[int]) -> None:
        """Who they are from now on. What is known of those that stay is kept."""
        counts = set(maximal)
        self._all = {broker: self._all.get(broker) or Follower(broker) for broker in replicas}
        self.counted = [follower for follower in self._all.values() if follower.broker in counts]
        self.outside = [follower for follower in self._all.values() if follower.broker not in counts]

    def least_end(self, own: int) -> int:
        """The smallest log end over the maximal ISR, of which our own is `own`."""
        for follower in self.counted:
            if follower.log_end < own:
                own = follower.log_end
        return own

    def least_start(self, own: int, lives: Callable[[int], bool]) -> int:
        """The smallest log start of those that live, and of our own log, `own`: the low watermark. UNKNOWN while one was not heard in this epoch."""
        return min([own, *(one.log_start for one in self._all.values() if lives(one.broker))])

    def held(self, watermark: int, now_s: float, may_join: Callable[[int, int], bool]) -> tuple[int, float]:
        """The high watermark as far as those let it rise who are about to join, and until when the first of them holds it: for those who have not come
        so far, and may (broker, its epoch)."""
        until_s = inf
        for follower in self.outside:
            if (
                follower.log_end < watermark
                and now_s < follower.holds_until_s
                and may_join(follower.broker, follower.broker_epoch)
            ):
                watermark, until_s = follower.log_end, min(until_s, follower.holds_until_s)
        return watermark, until_s
