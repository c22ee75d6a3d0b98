"""The leader's state of each follower of a partition in one leader epoch, and the high watermark
that follows from it. Pure.

- An in-sync follower of which nothing is known in this epoch holds the high watermark where it is.
- A follower outside of the ISR that has just caught up holds it too, for a moment: otherwise a busy
  leader would always be a little ahead of a follower that is to join.
- A follower leaves the ISR when for `replica.lag.time.max.ms` it has not reached what the leader's
  log held at the beginning of that time. It may join when its log reaches the high watermark and
  the start of the leader's epoch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from ottla_broker.wire.errors import ErrorCode, KafkaError

UNKNOWN: Final = -1
JOIN_TIMEOUT_S: Final = 1.0
"""How long after its last fetch a follower that could join holds the high watermark."""


class FetchPosition(Protocol):
    """A partition in one fetch session of a follower, which names its offset only once."""

    def record_again(self) -> None:
        """Records the offset again with the session's next fetch."""
        ...


@dataclass(slots=True, eq=False)
class Follower:
    """`log_end`, `log_start`, `broker_epoch`: by its last fetch. Times by the loop's clock.
    `uncounted_fetch`: (broker epoch, offset, log start) of the last fetch in a broker epoch that
    this broker's metadata do not know yet. `position`: that of the last fetch."""

    broker: int
    log_end: int = UNKNOWN
    log_start: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    fetched_s: float = -inf
    caught_up_s: float = -inf  # when it last reached the leader's log end
    leader_end: int = 0  # the leader's log end at its last fetch
    lag_target: int = UNKNOWN  # a log end of the leader; a follower that reaches it is in time
    lagging_since_s: float = inf  # when `lag_target` was the leader's log end
    uncounted_fetch: tuple[int, int, int] | None = None
    position: FetchPosition | None = None

    def record_fetch(self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_s: float) -> None:
        """Records a fetch from `offset`, below which every record is in the follower's log, and
        with `flush.messages=1` on its device.
        """
        if offset >= leader_end:
            self.caught_up_s = now_s
        elif offset >= self.leader_end:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.log_end, self.log_start, self.broker_epoch = offset, log_start, broker_epoch
        self.leader_end, self.fetched_s = leader_end, now_s

    def update_lagging(self, leader_end: int) -> bool:
        """True if the follower is behind the leader's log end. If not, its lag time is reset."""
        if self.log_end >= leader_end:
            self.lagging_since_s = inf
            return False
        return True

    def is_lagging_for(self, leader_end: int, now_s: float, max_lag_s: float) -> bool:
        """True if the follower has been behind for `max_lag_s` or longer. Called periodically."""
        if not self.update_lagging(leader_end):
            return False
        if self.lagging_since_s == inf or self.log_end >= self.lag_target:
            self.lag_target, self.lagging_since_s = leader_end, now_s
        return now_s - self.lagging_since_s >= max_lag_s

    def has_reached(self, high_watermark: int, epoch_start_offset: int) -> bool:
        return self.log_end >= high_watermark and self.log_end >= epoch_start_offset

    @property
    def joins_until_s(self) -> float:
        """Time until which the follower, though outside of the ISR, limits the high watermark; −inf
        when it has not just caught up.
        """
        return self.fetched_s + JOIN_TIMEOUT_S if self.fetched_s - self.caught_up_s <= JOIN_TIMEOUT_S else -inf


class Followers:
    """The followers of one partition. `in_sync`: those in the maximal ISR; `out_of_sync`: the
    others. Both in the order of the replicas.
    """

    __slots__ = ("_all", "in_sync", "out_of_sync")

    def __init__(self) -> None:
        self._all: dict[int, Follower] = {}
        self.in_sync: Sequence[Follower] = ()
        self.out_of_sync: Sequence[Follower] = ()

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
        """Records a fetch from `offset` and returns the follower; None when the fetch does not
        count. Raises NOT_LEADER_OR_FOLLOWER for a broker without a replica, or for an incarnation
        that has been replaced."""
        follower = self._all.get(broker)
        if follower is None or broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.not_leader_or_follower, f"broker {broker} of epoch {broker_epoch} is no follower here"
            )
        if broker_epoch != follower.broker_epoch and not is_registered(broker, broker_epoch):
            # With the registration that our metadata do not know yet it may have left the ISR that
            # we see (rule 4).
            follower.uncounted_fetch = broker_epoch, offset, log_start
            return None
        follower.uncounted_fetch = None
        follower.record_fetch(offset, log_start, broker_epoch, leader_end, now_s)
        return follower

    def set_position(self, broker: int, position: FetchPosition) -> None:
        """Remembers the fetch session of the broker's last fetch. If the fetch before it came by
        another session, that session records its offset again with its next fetch: the present
        fetch may be an old one, from the socket of a connection that the follower has given up.
        """
        follower = self._all.get(broker)
        if follower is not None and follower.position is not position:
            if follower.position is not None:
                follower.position.record_again()
            follower.position = position

    def update_lagging(self, leader_end: int) -> bool:
        """True if a follower in the maximal ISR is behind."""
        return bool([one for one in self.in_sync if one.update_lagging(leader_end)])

    def lagging_for(self, leader_end: int, now_s: float, max_lag_s: float) -> set[int]:
        """Brokers in the maximal ISR that have been behind for `max_lag_s` or longer."""
        return {one.broker for one in self.in_sync if one.is_lagging_for(leader_end, now_s, max_lag_s)}

    def set_replicas(self, replicas: Iterable[int], maximal_isr: Iterable[int]) -> None:
        """Sets the replicas. The state of followers that stay is kept."""
        in_sync = set(maximal_isr)
        self._all = {broker: self._all.get(broker) or Follower(broker) for broker in replicas}
        self.in_sync = [follower for follower in self._all.values() if follower.broker in in_sync]
        self.out_of_sync = [follower for follower in self._all.values() if follower.broker not in in_sync]

    def least_end(self, own: int) -> int:
        """The smallest log end over the maximal ISR; `own`: the leader's."""
        for follower in self.in_sync:
            if follower.log_end < own:
                own = follower.log_end
        return own

    def least_start(self, own: int, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start of live replicas; UNKNOWN while one has not fetched in this
        epoch.
        """
        return min([own, *(one.log_start for one in self._all.values() if is_alive(one.broker))])

    def limit_to_joining(self, watermark: int, now_s: float, may_join: Callable[[int, int], bool]) -> tuple[int, float]:
        """Returns (high watermark, time). The high watermark is at most `watermark`, and at most
        the log end of each follower that is about to join the ISR. The time, by the loop's clock,
        is when the first of these followers stops limiting it; inf if none does. `may_join`:
        (broker, broker epoch).
        """
        until_s = inf
        for follower in self.out_of_sync:
            if (
                follower.log_end < watermark
                and now_s < follower.joins_until_s
                and may_join(follower.broker, follower.broker_epoch)
            ):
                watermark, until_s = follower.log_end, min(until_s, follower.joins_until_s)
        return watermark, until_s
