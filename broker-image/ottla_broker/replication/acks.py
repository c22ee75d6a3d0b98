"""Producers that wait until the whole ISR has what they sent."""

import asyncio
import heapq
from collections.abc import Awaitable

from ottla_broker.wire.errors import KafkaError


class Acks:
    """Waiters by the offset that the high watermark must reach."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, offset: int) -> Awaitable[None]:
        """Ends when the high watermark has reached `offset`; raises what `fail` was told."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (offset, self._count, waiter))
        return waiter

    def reached(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiter = heapq.heappop(waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, reason: KafkaError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(reason)
