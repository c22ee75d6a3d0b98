"""The moment at which a driver is killed: when each of its queries has reached its step.

Some steps are within a call that the JVM executes, which Python code cannot interrupt. So that call
is made to wait: for the lock of its catalog's SQLite database, or for a free task slot of Spark.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

Step = tuple[str, str]
"""MODULE:FUNCTION or MODULE:CLASS.METHOD, and the moment of the kill: `before` the call, `after`
it, or while it runs:

- `committing`: the call has written the metadata file of an Iceberg table, but the catalog, in a
  SQLite database, does not name the file yet;
- `committed`: the call has committed, and its job that looks for files to delete waits for a task
  slot.
"""
_POLL_S: Final = 0.002
_WITHIN_S: Final = 120.0
_SLEEP_MS: Final = 600_000


class Death:
    """`queries`: the number of queries that have to reach a step. `folder`: of the catalogs'
    databases and of the tables.
    """

    def __init__(self, queries: int, folder: Path) -> None:
        self._barrier = threading.Barrier(queries, action=self._prepare)
        self._folder = folder
        self._lock = threading.Lock()
        self._amid: list[str] = []
        self._connections: list[sqlite3.Connection] = []

    def await_others(self, when: str) -> None:
        """Waits until every query has reached its step. For `committing` and `committed` it then
        returns, so that the query begins the call; otherwise the query waits here for the kill.
        """
        is_amid = when in ("committing", "committed")
        with self._lock:
            self._amid += [when] * is_amid
        self._barrier.wait()
        if not is_amid:
            threading.Event().wait()

    def _prepare(self) -> None:
        count = len(self._amid)
        if not count:
            _die()
        if "committed" in self._amid:
            tracker = _occupy_task_slots()
            _die_when(lambda: len(tracker.getActiveJobIds()) > count)
        else:
            files = self._count_metadata() + count
            self._lock_databases()
            _die_when(lambda: self._count_metadata() >= files)

    def _count_metadata(self) -> int:
        return sum(1 for _ in self._folder.rglob("*.metadata.json"))

    def _lock_databases(self) -> None:
        """Others can still read the databases. The locks are free when this process has died."""
        for file in self._folder.glob("*.db"):
            connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            connection.execute("BEGIN IMMEDIATE")
            self._connections.append(connection)


def _occupy_task_slots() -> Any:
    """Starts a job that sleeps in every task slot, and waits until all are occupied. Returns
    Spark's status tracker.
    """
    spark = SparkSession.builder.getOrCreate()
    context: Any = spark.sparkContext
    slots, tracker = context.defaultParallelism, context._jsc.statusTracker()
    sleeping = spark.range(0, slots, 1, slots).selectExpr(f"reflect('java.lang.Thread', 'sleep', {_SLEEP_MS}L)")
    threading.Thread(target=sleeping.collect, daemon=True).start()
    while sum(tracker.getStageInfo(it).numActiveTasks() for it in tracker.getActiveStageIds()) < slots:
        time.sleep(_POLL_S)
    return tracker


def _die_when(is_reached: Callable[[], bool]) -> None:
    """Returns at once, and kills the process when `is_reached` is True. If that takes too long, the
    process exits with a code that is not that of a killed one.
    """

    def wait() -> None:
        deadline = time.monotonic() + _WITHIN_S
        while not is_reached():
            if time.monotonic() > deadline:
                os._exit(os.EX_SOFTWARE)
            time.sleep(_POLL_S)
        _die()

    threading.Thread(target=wait, daemon=True).start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
