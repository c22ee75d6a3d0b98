"""When a process that ended by itself is started again.

Waits double up to a longest one. A process that ran for a while has earned a fresh start. Five ends in a row without that are a crash loop: it is
still tried, since the cause may go away by itself, but a person is told.
"""

from dataclasses import dataclass
from typing import Final

LOOP_AFTER: Final = 5
MOST_DOUBLINGS: Final = 64  # beyond any longest wait; a night of falls has more than a float can hold


@dataclass(frozen=True, slots=True)
class RestartDelays:
    """Waits in seconds: after a first end, after a second one, from where they double, and at most. `earned_after_s`: a run that begins anew."""

    first_s: float
    second_s: float
    longest_s: float
    stable_after_s: float


BROKER_RESTARTS: Final = RestartDelays(1.0, 2.0, 30.0, 60.0)
PIPELINE_RESTARTS: Final = RestartDelays(1.0, 10.0, 300.0, 600.0)
"""As a kubelet's CrashLoopBackOff: at once, and then after 10 s, twice as long each time, up to five minutes."""


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """Ends in a row without a long run between them."""

    delays: RestartDelays
    exits: int = 0

    def after_run(self, duration_s: float) -> "RestartBackoff":
        """`lasted_s`: how long the run that just ended took."""
        return RestartBackoff(self.delays, 1 if duration_s >= self.delays.stable_after_s else self.exits + 1)

    @property
    def delay_s(self) -> float:
        """How long to wait before the next start."""
        if self.exits < 2:
            return self.delays.first_s
        doublings = min(self.exits - 2, MOST_DOUBLINGS)
        return min(self.delays.longest_s, self.delays.second_s * 2.0**doublings)

    @property
    def is_crash_loop(self) -> bool:
        return self.exits >= LOOP_AFTER
