"""Replication throttling (KIP-73): `leader|follower.replication.throttled.rate` and `.replicas`.

Only replicas outside of the ISR are throttled, so that throttling removes no replica from the ISR.
"""

from collections.abc import Callable
from typing import Final

from ottla_broker.config.value_types import MAX_INT64

BURST_S: Final = 1.0
ALL: Final = "*"


def is_throttled(entries: tuple[str, ...], partition: int, broker: int) -> bool:
    """`entries`: the topic's list, each `partition:broker` or `*`."""
    return bool(entries) and (ALL in entries or f"{partition}:{broker}" in entries)


class Throttle:
    """`rate`: the present limit in bytes per second. Bytes are recorded after they were copied, and
    the wait follows.
    """

    def __init__(self, rate: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._rate = rate
        self._now_s = now_s
        self._owed = 0.0  # bytes recorded and not waited for yet; below 0: allowance for a burst
        self._at_s = 0.0

    def record_bytes(self, size: int) -> None:
        if self._update_rate() < MAX_INT64:
            self._owed += size

    def throttle_time_s(self) -> float:
        """Seconds until more may be copied; 0 if more may be copied now."""
        rate = self._update_rate()
        return max(self._owed, 0.0) / rate if rate < MAX_INT64 else 0.0

    def _update_rate(self) -> int:
        rate, now_s = max(self._rate(), 1), self._now_s()
        self._owed = max(self._owed - (now_s - self._at_s) * rate, -BURST_S * rate)
        self._at_s = now_s
        return rate
