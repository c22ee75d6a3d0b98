"""When a process that ended by itself is started again.

Waits double from 1 s to 30 s. A process that ran for a minute has earned a fresh start. Five ends in a row without that are a crash loop: it is
still tried every 30 s, since the cause may go away by itself, but a person is told.
"""

from dataclasses import dataclass

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
DOUBLINGS = 5  # from the first wait to the longest
EARNED_AFTER_S = 60.0
LOOP_AFTER = 5


@dataclass(frozen=True, slots=True)
class Failures:
    """Ends in a row without a minute's run between them."""

    in_a_row: int = 0

    def after_run(self, lasted_s: float) -> "Failures":
        """`lasted_s`: how long the run that just ended took."""
        return Failures(1 if lasted_s >= EARNED_AFTER_S else self.in_a_row + 1)

    @property
    def wait_s(self) -> float:
        """How long to wait before the next start."""
        doublings = min(max(0, self.in_a_row - 1), DOUBLINGS)  # a night of falls has more than a float can hold
        return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**doublings)

    @property
    def loops(self) -> bool:
        return self.in_a_row >= LOOP_AFTER
