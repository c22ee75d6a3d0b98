"""Metrics of the process, under the names that Prometheus client libraries, or Kafka, give them.

Read from Linux's /proc, without which most are left out.
"""

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from ottla_broker import metrics
from ottla_broker.metrics import Metric, Sample

_START_TIME_FIELD = 22  # of /proc/self/stat, as proc(5) numbers them
_FIRST_FIELD_AFTER_NAME = 3


class EventLoopIdleTime:
    """The idle share of the calling thread between two calls of `collect`."""

    def __init__(self) -> None:
        self._last_s = time.monotonic(), time.thread_time()

    def collect(self) -> Iterator[tuple[Metric, list[Sample]]]:
        before, now = self._last_s, (time.monotonic(), time.thread_time())
        self._last_s = now
        elapsed_s, busy_s = now[0] - before[0], now[1] - before[1]
        idle = max(0.0, 1 - busy_s / elapsed_s) if elapsed_s > 0 else 1.0
        for metric in (metrics.EVENT_LOOP_IDLE, metrics.HANDLER_IDLE):
            yield metric, [Sample((), idle)]


def read_process_metrics() -> Iterator[tuple[Metric, float]]:
    """To be read in another thread: it blocks for 0.1 ms, and much longer with thousands of open
    files."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield metrics.PROCESS_CPU, usage.ru_utime + usage.ru_stime
    yield metrics.PROCESS_MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        virtual, resident = (int(pages) for pages in Path("/proc/self/statm").read_text().split()[:2])
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        boot_line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (pathlib would make an object of each)
    except OSError:
        return
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    yield metrics.PROCESS_VIRTUAL, virtual * page_bytes
    yield metrics.PROCESS_RESIDENT, resident * page_bytes
    yield metrics.DISK_READ, int(io["read_bytes"])
    yield metrics.DISK_WRITTEN, int(io["write_bytes"])
    yield metrics.PROCESS_OPEN_FILES, open_files
    started_ticks = int(fields[_START_TIME_FIELD - _FIRST_FIELD_AFTER_NAME])
    yield metrics.PROCESS_START, int(boot_line.split()[1]) + started_ticks / os.sysconf("SC_CLK_TCK")
