"""Chooses the requests that are traced: a random share of them, and no more than MAX_TRACES_PER_S.
Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla_broker.metrics import TraceCounts

MAX_TRACES_PER_S: Final = 100


@dataclass(slots=True)
class Sampler:
    """`ratio`: returns the share, 0 to 1. `random`: returns a number from 0 to below 1. `clock`:
    returns seconds.
    """

    ratio: Callable[[], float]
    random: Callable[[], float]
    clock: Callable[[], float]
    counts: TraceCounts
    _second_began_s: float = 0.0
    _trace_count: int = 0  # in this second

    def is_sampled(self) -> bool:
        """True if the next request is traced. A request that only MAX_TRACES_PER_S excludes is
        counted as limited.
        """
        if self.random() >= self.ratio():
            return False
        now_s = self.clock()
        if now_s - self._second_began_s >= 1:
            self._second_began_s, self._trace_count = now_s, 0
        if self._trace_count >= MAX_TRACES_PER_S:
            self.counts.limited_requests += 1
            return False
        self._trace_count += 1
        return True
