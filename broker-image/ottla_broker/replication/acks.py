"""Producers that wait until the whole ISR has what they sent; where the lead changes meanwhile, until the new leader's ISR has.

That spares those without idempotence a doubled record at every planned restart: what an old leader appended and its successor took over is
acknowledged all the same, once the high watermark that the old leader learns as a follower has passed it.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from ottla_broker.wire.errors import KafkaError

HANDOVER_S: Final = 2.0


class Acks:
    """Waiters by the offset that the high watermark must reach."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None], bool]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[asyncio.Future[None]]:
        return iter([waiter for _, _, waiter, _ in self._waiting])

    def wait(self, offset: int, *, across_leaders: bool = False) -> Awaitable[None]:
        """Ends when the high watermark has reached `offset`; raises what `fail` was told. `across_leaders`: whether another leader's
        high watermark will do."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (offset, self._count, waiter, across_leaders))
        return waiter

    def reached(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiter = heapq.heappop(waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, reason: KafkaError) -> None:
        self._fail(reason, lambda offset, across: True)

    def hand_over(self, reason: KafkaError) -> None:
        """Somebody else leads: what was appended may be there to stay all the same. Those that wait across leaders wait on for a while."""
        self._fail(reason, lambda offset, across: not across)
        if self._waiting:
            asyncio.get_running_loop().call_later(HANDOVER_S, _give_up, list(self), reason)

    def cut_back(self, end: int, reason: KafkaError) -> None:
        """What lay at `end` and after it is gone from the log."""
        self._fail(reason, lambda offset, across: offset > end)

    def _fail(self, reason: KafkaError, which: Callable[[int, bool], bool]) -> None:
        failed = [entry for entry in self._waiting if which(entry[0], entry[3])]
        self._waiting = [entry for entry in self._waiting if not which(entry[0], entry[3])]
        heapq.heapify(self._waiting)
        _give_up([waiter for _, _, waiter, _ in failed], reason)


def _give_up(waiters: list[asyncio.Future[None]], reason: KafkaError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(reason)
