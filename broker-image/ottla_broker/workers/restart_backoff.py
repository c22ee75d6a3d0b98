"""Delays between restarts of a worker that exits. Pure."""

from dataclasses import dataclass
from typing import Final

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 30.0
STABLE_AFTER_S: Final = 60.0
"""A run of this length counts as success: the next exit is the first again."""
MAX_DOUBLINGS: Final = 5


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """`exits`: consecutive exits without a stable run between them."""

    exits: int = 0

    def after_run(self, duration_s: float) -> "RestartBackoff":
        return RestartBackoff(1 if duration_s >= STABLE_AFTER_S else self.exits + 1)

    @property
    def delay_s(self) -> float:
        doublings = min(max(self.exits - 1, 0), MAX_DOUBLINGS)
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * float(2**doublings))
