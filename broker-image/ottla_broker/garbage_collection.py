"""Bounds the pauses of Python's garbage collector, in which a broker does nothing else.

A collection of the oldest generation examines every container that is not frozen: with 40,000
partitions more than half a second, again and again. So what a start leaves is frozen, and so are
the survivors of a collection that took long, such as partitions that were created since.

The youngest generation is examined when it has MAX_YOUNG containers. With the 700 of Python 3.11,
the containers of waiting requests are examined several times: 1,000 members that join a group keep
3,000 of them.

Objects are freed without a collection when nothing refers to them, frozen or not. Those of a
partition or a connection may refer to each other, and would stay in memory if they are frozen. So
everything is examined once more when many partitions were deleted, and once an hour.
"""

import gc
import time
from typing import Final, Protocol

MAX_PAUSE_S: Final = 0.05
"""Processor time: other processes that run meanwhile do not count."""
MAX_FROZEN_S: Final = 3600.0
MIN_REMOVED: Final = 1000
"""Deleted partitions that may stay in memory, about 10 MB; a quarter of the hosted partitions if
that is more.
"""
OLDEST: Final = 2
MAX_YOUNG: Final = 20_000


class HostedPartitions(Protocol):
    """`removed_count`: since the broker started."""

    removed_count: int

    def __len__(self) -> int: ...


class PauseLimit:
    """Freezes what a long collection leaves, and from time to time lets everything be examined
    again.
    """

    def __init__(self, partitions: HostedPartitions) -> None:
        self._partitions = partitions
        self._removed_when_examined = partitions.removed_count
        self._examined_s = time.monotonic()
        self._began_s = 0.0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Called when the broker is ready."""
        gc.freeze()
        gc.set_threshold(MAX_YOUNG, *self._thresholds[1:])
        gc.callbacks.append(self.on_collection)

    def stop(self) -> None:
        """Called when the broker stops: another one may start in this process."""
        if self.on_collection in gc.callbacks:
            gc.callbacks.remove(self.on_collection)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector at the start and the end of each collection."""
        if info["generation"] != OLDEST:
            return
        now_s = time.thread_time()
        if phase == "start":
            self._began_s = now_s
        elif now_s - self._began_s > MAX_PAUSE_S:
            gc.freeze()
        elif self._keeps_too_many_removed() or time.monotonic() - self._examined_s > MAX_FROZEN_S:
            gc.unfreeze()  # the next collection examines all and takes long
            self._removed_when_examined = self._partitions.removed_count
            self._examined_s = time.monotonic()

    def _keeps_too_many_removed(self) -> bool:
        removed = self._partitions.removed_count - self._removed_when_examined
        return removed > max(MIN_REMOVED, len(self._partitions) // 4)
