"""Warns of pauses of the event loop, in which a broker serves nobody and sends no heartbeats.

The controller fences a broker that is silent for `broker.session.timeout.ms`. The broker's own log
then says what the time was spent on: computing, waiting for a processor, or neither. The last is a
wait for the disk or for memory, or a stopped process (`kubectl debug`, a virtual machine that is
moved). Hadoop's JvmPauseMonitor does the same.
"""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.5
MAX_PAUSE_S: Final = 1.0
SCHEDSTAT: Final = Path("/proc/self/schedstat")
"""Of the main thread, which runs the event loop: nanoseconds of processor time, nanoseconds in the
queue for a processor, number of time slices."""


class ThreadTimes(NamedTuple):
    """Of this thread, in seconds. `queued_s`: 0 where Linux does not count it."""

    clock_s: float
    computed_s: float
    queued_s: float


class PauseMonitor:
    """Sets a timer of `interval_s` again and again, and warns when it is more than `max_pause_s`
    late.
    """

    def __init__(self, interval_s: float = INTERVAL_S, max_pause_s: float = MAX_PAUSE_S) -> None:
        self._interval_s = interval_s
        self._max_pause_s = max_pause_s
        self._schedstat: int | None = None  # a file descriptor
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Called on the event loop's thread, the main thread."""
        try:
            self._schedstat = os.open(SCHEDSTAT, os.O_RDONLY)
        except OSError:
            self._schedstat = None
        self._set_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._check, self._read_times())

    def _check(self, before: ThreadTimes) -> None:
        now = self._read_times()
        elapsed_s = now.clock_s - before.clock_s
        if elapsed_s - self._interval_s > self._max_pause_s:
            logger.warning("%s", describe_pause(before, now))
        self._set_timer()

    def _read_times(self) -> ThreadTimes:
        queued_s = 0.0
        if self._schedstat is not None:
            queued_s = int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9
        return ThreadTimes(time.monotonic(), time.thread_time(), queued_s)


def describe_pause(before: ThreadTimes, now: ThreadTimes) -> str:
    elapsed_s, computed_s, queued_s = (later - earlier for earlier, later in zip(before, now, strict=True))
    other_s = max(0.0, elapsed_s - computed_s - queued_s)
    return (
        f"the event loop did not run a timer for {elapsed_s:.1f} s: {computed_s:.1f} s of computing, {queued_s:.1f} s "
        f"of waiting for a processor, {other_s:.1f} s idle, waiting for the disk or stopped"
    )
