"""How soon to look again while something is waited for: soon at first, and more seldom the longer nothing is new.

A roll that waits for a partition, or a topic that is to be moved, may do so for hours; every look asks the API server and the brokers.
"""

from dataclasses import dataclass
from typing import Final

SHARE: Final = 0.05  # of the time for which it has lasted


@dataclass(slots=True)
class Patience:
    """`said`: what is waited for, in whatever form can be compared; `since`: from when on."""

    said: object = None
    since: float = 0.0

    def pause(self, said: object, now: float, soon_s: float, longest_s: float) -> float:
        """Seconds. `now`: of any clock that goes on evenly."""
        if said != self.said:
            self.said, self.since = said, now
        return min(longest_s, max(soon_s, SHARE * (now - self.since)))
