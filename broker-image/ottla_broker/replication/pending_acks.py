"""Producers that wait until the whole ISR has what they sent; where the lead changes meanwhile, until the new leader's ISR has.

That spares those without idempotence a doubled record at every planned restart: what an old leader appended and its successor took over is
acknowledged all the same, once the high watermark that the old leader learns as a follower has passed it.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla_broker.wire.errors import KafkaError

HANDOVER_TIMEOUT_S: Final = 2.0

CommitCallback = Callable[[KafkaError | None], None]
"""Called when what was waited for has come, with None, or will not come, with why."""


class Waiter(NamedTuple):
    """They come in the order of `offset`, then of their coming. `across`: whether another leader's high watermark will do."""

    offset: int
    number: int
    told: CommitCallback
    across: bool


class PendingAcks:
    """Waiters by the offset that the high watermark must reach. They are told in the turn of the loop in which it does."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Waiter] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, offset: int, told: CommitCallback, *, across_leaders: bool = False) -> None:
        """`told` hears when the high watermark has reached `offset`, or what `fail` was given. `across_leaders`: whether another leader's
        high watermark will do."""
        self._count += 1
        heapq.heappush(self._waiting, Waiter(offset, self._count, told, across_leaders))

    def future(self, offset: int, *, across_leaders: bool = False) -> asyncio.Future[None]:
        """As `wait`, for a task."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(reason: KafkaError | None) -> None:
            if waiter.done():
                return
            if reason is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(reason)

        self.wait(offset, told, across_leaders=across_leaders)
        return waiter

    def settled(self) -> asyncio.Future[None]:
        """Ends with the last of those that wait now, whatever they are told. Somebody must be waiting."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wait(
            max(self._waiting).offset, lambda _: None if ended.done() else ended.set_result(None), across_leaders=True
        )
        return ended

    def reached(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].offset <= high_watermark:
            heapq.heappop(waiting).told(None)

    def fail(self, reason: KafkaError) -> None:
        self._fail(reason, lambda waiter: True)

    def hand_over(self, reason: KafkaError) -> None:
        """Somebody else leads: what was appended may be there to stay all the same. Those that wait across leaders wait on for a while."""
        self._fail(reason, lambda waiter: not waiter.across)
        if self._waiting:
            latest = self._count
            asyncio.get_running_loop().call_later(
                HANDOVER_TIMEOUT_S, self._fail, reason, lambda waiter: waiter.number <= latest
            )

    def cut_back(self, end: int, reason: KafkaError) -> None:
        """What lay at `end` and after it is gone from the log."""
        self._fail(reason, lambda waiter: waiter.offset > end)

    def _fail(self, reason: KafkaError, which: Callable[[Waiter], bool]) -> None:
        failed = [waiter for waiter in self._waiting if which(waiter)]
        self._waiting = [waiter for waiter in self._waiting if not which(waiter)]
        heapq.heapify(self._waiting)
        for waiter in failed:
            waiter.told(reason)
