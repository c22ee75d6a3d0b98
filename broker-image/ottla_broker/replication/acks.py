"""Producers that wait until the whole ISR has what they sent."""

import heapq
from collections.abc import Callable

from ottla_broker.wire.errors import KafkaError

Told = Callable[[KafkaError | None], None]
"""Called when what was waited for has come, with None, or will not come, with why."""


class Acks:
    """Waiters by the offset that the high watermark must reach. They are told in the turn of the loop in which it does."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Told]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, offset: int, told: Told) -> None:
        """`told` hears when the high watermark has reached `offset`, or what `fail` was given."""
        self._count += 1
        heapq.heappush(self._waiting, (offset, self._count, told))

    def reached(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            heapq.heappop(waiting)[2](None)

    def fail(self, reason: KafkaError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, told in waiting:
            told(reason)
