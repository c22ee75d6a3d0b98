"""Long work on the event loop, done in short slices between which requests are served.

- A request that arrives during a slice waits for its end. It is read in the next iteration of the
  loop, and small Produce requests are answered in the one after that (`produce_turn`), so a pause
  lasts two iterations.
- An iteration of a busy loop takes long. A slice is then longer in proportion, so that the work
  gets its share of the loop's time at any load, and its end does not depend on an idle moment.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

MIN_SLICE_S: Final = 0.0001
MAX_SLICE_S: Final = 0.002
"""After the longest pauses: a single one must not cause a slice that requests notice."""
PAUSE_SHARE: Final = 0.125
"""Length of a slice, as a share of the pause before it."""
ITERATIONS_PER_PAUSE: Final = 2
ITEMS_PER_BATCH: Final = 32
"""Between two looks at the clock: about 0.03 ms of usual work."""

T = TypeVar("T")


class TimeSlices:
    """The slices of one piece of work, which may be done in several functions."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._end_s = clock() + MIN_SLICE_S

    async def pause_if_due(self) -> None:
        began_s = self._clock()
        if began_s < self._end_s:
            return
        for _ in range(ITERATIONS_PER_PAUSE):
            await asyncio.sleep(0)
        now_s = self._clock()
        self._end_s = now_s + min(max((now_s - began_s) * PAUSE_SHARE, MIN_SLICE_S), MAX_SLICE_S)

    async def batches(self, items: Iterable[T]) -> AsyncIterator[tuple[T, ...]]:
        """Yields the items in batches, after each of which a pause may be due. Other tasks run in
        the pauses, so `items` must be a copy, or an iterator over copies.
        """
        remaining = iter(items)
        while batch := tuple(islice(remaining, ITEMS_PER_BATCH)):
            yield batch
            await self.pause_if_due()
