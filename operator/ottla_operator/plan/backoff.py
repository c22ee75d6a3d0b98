"""Delays that grow: between reconciles while a resource waits, and between restarts of a process
that exits.
"""

from dataclasses import dataclass
from typing import Final

SHARE_OF_WAIT: Final = 0.05
"""The delay until the next reconcile, as a share of the time for which nothing has changed. A roll
may wait for a partition for hours, and every reconcile asks the API server and the brokers."""
CRASH_LOOP_AFTER: Final = 5
MAX_DOUBLINGS: Final = 64  # a process that exits all night would exceed what a float can hold


@dataclass(slots=True)
class RequeueBackoff:
    """The delay until the next reconcile of one resource."""

    _waiting_for: object = None
    _since_s: float = 0.0

    def delay_s(self, waiting_for: object, now_s: float, shortest_s: float, longest_s: float) -> float:
        """`waiting_for`: compared with the last call's; a new value restarts from `shortest_s`.
        `now_s`: monotonic.
        """
        if waiting_for != self._waiting_for:
            self._waiting_for, self._since_s = waiting_for, now_s
        return min(longest_s, max(shortest_s, SHARE_OF_WAIT * (now_s - self._since_s)))


@dataclass(frozen=True, slots=True)
class RestartDelays:
    """Delays after the first exit and after the second, from where they double up to `longest_s`. A
    run of `stable_after_s` counts as success: the next exit is the first again."""

    first_s: float
    second_s: float
    longest_s: float
    stable_after_s: float


BROKER_RESTARTS: Final = RestartDelays(1.0, 2.0, 30.0, 60.0)
PIPELINE_RESTARTS: Final = RestartDelays(1.0, 10.0, 300.0, 600.0)
"""Like a kubelet's CrashLoopBackOff: almost at once, then after 10 s, doubling up to 5 minutes."""


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """Counts consecutive exits without a stable run between them. After five the process is in a
    crash loop: it is still restarted, since the cause may go away, and the crash loop is reported.
    """

    delays: RestartDelays
    exits: int = 0

    def after_run(self, duration_s: float) -> "RestartBackoff":
        """The backoff after a run of this length has ended."""
        return RestartBackoff(self.delays, 1 if duration_s >= self.delays.stable_after_s else self.exits + 1)

    @property
    def delay_s(self) -> float:
        """Time to wait before the next start."""
        if self.exits < 2:
            return self.delays.first_s
        doublings = min(self.exits - 2, MAX_DOUBLINGS)
        return min(self.delays.longest_s, self.delays.second_s * 2.0**doublings)

    @property
    def is_crash_loop(self) -> bool:
        return self.exits >= CRASH_LOOP_AFTER
