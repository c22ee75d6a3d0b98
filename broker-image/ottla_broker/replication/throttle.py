"""How fast replicas that are being moved may be copied: `leader|follower.replication.throttled.rate` and `.replicas` (KIP-73).

Only replicas outside of the ISR are held back: those that are in it must not fall out of it for that.
"""

from collections.abc import Callable
from typing import Final

from ottla_broker.config.kinds import MAX_INT64

BURST_S: Final = 1.0
ALL: Final = "*"


def is_throttled(entries: tuple[str, ...], partition: int, broker: int) -> bool:
    """`entries`: of the topic's list, `partition:broker` or `*`."""
    return bool(entries) and (ALL in entries or f"{partition}:{broker}" in entries)


class Throttle:
    """`rate`: bytes a second, asked for every time, as it may change. What is taken is paid for afterwards, by waiting."""

    def __init__(self, rate: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._rate = rate
        self._now_s = now_s
        self._paid_at_s = 0.0  # when what was taken so far would have been had at the rate

    def took(self, size: int) -> None:
        rate = self._rate()
        if rate < MAX_INT64:
            self._paid_at_s = max(self._paid_at_s, self._now_s() - BURST_S) + size / max(rate, 1)

    def wait_s(self) -> float:
        """How long nothing more may be taken; 0 when something may."""
        return max(self._paid_at_s - self._now_s(), 0.0)
