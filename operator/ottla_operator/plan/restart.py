"""When a process that ended by itself is started again.

Waits double up to a longest one. A process that ran for a while has earned a fresh start. Five ends in a row without that are a crash loop: it is
still tried, since the cause may go away by itself, but a person is told.
"""

from dataclasses import dataclass
from typing import Final

LOOP_AFTER: Final = 5


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds: after a first end, after a second one, from where they double, and at most. `earned_after_s`: a run that begins anew."""

    first_s: float
    second_s: float
    longest_s: float
    earned_after_s: float


BROKERS: Final = Pace(1.0, 2.0, 30.0, 60.0)
PIPELINES: Final = Pace(1.0, 10.0, 300.0, 600.0)
"""As a kubelet's CrashLoopBackOff: at once, and then after 10 s, twice as long each time, up to five minutes."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Ends in a row without a long run between them."""

    pace: Pace
    in_a_row: int = 0

    def after_run(self, lasted_s: float) -> "Failures":
        """`lasted_s`: how long the run that just ended took."""
        return Failures(self.pace, 1 if lasted_s >= self.pace.earned_after_s else self.in_a_row + 1)

    @property
    def wait_s(self) -> float:
        """How long to wait before the next start."""
        if self.in_a_row < 2:
            return self.pace.first_s
        return min(self.pace.longest_s, self.pace.second_s * 2.0 ** (self.in_a_row - 2))

    @property
    def loops(self) -> bool:
        return self.in_a_row >= LOOP_AFTER
