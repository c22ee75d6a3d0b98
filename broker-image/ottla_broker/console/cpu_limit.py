"""Keeps searches within a part of the processor time that a container may use.

When a container has used up its processor time in a period (100 ms), Linux stops all of its
processes until the next period, the broker too, whatever their priorities are. So searches pause
before that.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SEARCHES_SHARE: Final = 0.5
"""Part of the container's limit that all searches together may use."""
MIN_CPUS: Final = 0.05
"""Processors for each search, however many run. With less, searches would exceed the time limit of
a request to their worker (`search_process.REQUEST_TIMEOUT_S`).
"""
SLICE_S: Final = 0.005
"""Processor time between two pauses: a small part of a period."""
CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")


def find_cpu_limit(mount: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Number of processors that this process's control group may use; None: all of them."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return None
    limits = [limit for line in lines for limit in _limits(mount, *line.split(":", 2)[1:]) if limit is not None]
    return min(limits, default=None)


def _limits(mount: Path, controllers: str, group: str) -> list[float | None]:
    """Limits of the group that a line of /proc/self/cgroup names, in processors. In a container the
    group's folder may be the mount itself.
    """
    path = group.lstrip("/")
    if not controllers:
        return [_read_limit(folder / "cpu.max") for folder in (mount / path, mount)]
    if "cpu" not in controllers.split(","):
        return []
    folders = (mount / controllers / path, mount / controllers)
    return [_read_limit(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us") for folder in folders]


def _read_limit(*files: Path) -> float | None:
    """Quota and period as a number of processors; None without a limit (`max 100000`, or `-1`)."""
    try:
        quota_us, period_us = " ".join(one.read_text() for one in files).split()
        return int(quota_us) / int(period_us) if int(quota_us) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


class Pacer:
    """Pauses a search so that all searches together use SEARCHES_SHARE of `cpu_limit`, the number
    of processors that the container may use. `cpu_time_s`: returns the processor time of this
    process.
    """

    def __init__(
        self,
        cpu_limit: float,
        cpu_time_s: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._searches_cpus = cpu_limit * SEARCHES_SHARE
        self._cpu_time_s = cpu_time_s
        self._sleep = sleep
        self._paused_at_s = cpu_time_s()

    def pause_if_due(self, searches: int) -> None:
        """Called for each record. `searches`: number of searches on this broker, each of which has
        a process.
        """
        used_s = self._cpu_time_s() - self._paused_at_s
        if used_s >= SLICE_S:
            cpus = max(MIN_CPUS, self._searches_cpus / searches)
            if cpus < 1:
                self._sleep(used_s / cpus - used_s)
            self._paused_at_s = self._cpu_time_s()
