"""How fast replicas that are being moved may be copied: `leader|follower.replication.throttled.rate` and `.replicas` (KIP-73).

Only replicas outside of the ISR are held back: those that are in it must not fall out of it for that.
"""

from collections.abc import Callable
from typing import Final

from ottla_broker.config.value_types import MAX_INT64

BURST_S: Final = 1.0
ALL: Final = "*"


def is_throttled(entries: tuple[str, ...], partition: int, broker: int) -> bool:
    """`entries`: of the topic's list, `partition:broker` or `*`."""
    return bool(entries) and (ALL in entries or f"{partition}:{broker}" in entries)


class Throttle:
    """`rate`: bytes a second, asked for every time, as it may change. What is taken is paid for afterwards, by waiting, at the rate as it then is."""

    def __init__(self, rate: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._rate = rate
        self._now_s = now_s
        self._owed = 0.0  # bytes that were taken and not waited for yet; below 0: what may be taken in one go
        self._at_s = 0.0

    def record_bytes(self, size: int) -> None:
        if self._settled_rate() < MAX_INT64:
            self._owed += size

    def throttle_time_s(self) -> float:
        """How long nothing more may be taken; 0 when something may."""
        rate = self._settled_rate()
        return max(self._owed, 0.0) / rate if rate < MAX_INT64 else 0.0

    def _settled_rate(self) -> int:
        rate, now_s = max(self._rate(), 1), self._now_s()
        self._owed = max(self._owed - (now_s - self._at_s) * rate, -BURST_S * rate)
        self._at_s = now_s
        return rate
