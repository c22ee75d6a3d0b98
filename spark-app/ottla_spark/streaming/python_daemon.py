"""The daemon that starts the Python processes of executors: PySpark's own, with three changes.

A task in Python waits for three things of PySpark that it does not need:

- Before each task, PySpark has Python forget which files its import paths have. Python 3.11 then
  reads the directories of all archives among them: PySpark's, and the jar of Spark's classes, which
  Spark adds. That is 60 ms of processor time for a task. Here Python reads an archive again if it
  has changed.
- The JVM writes a task and then its rows. TCP holds the rows until the task is acknowledged, and
  the kernel acknowledges a small packet only after 40 ms. Here it does so at once.
- After each task, PySpark collects garbage. Here it leaves out the objects that all processes begin
  with.
"""

from __future__ import annotations

import gc
import importlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from zipimport import zipimporter

from pyspark import daemon

RunTask = Callable[[socket.socket, bool], int]
"""Runs the task that it reads from the socket; the flag is true if the JVM has authenticated.
Returns the exit code."""


def main() -> None:
    replaced: Any = daemon
    replaced.worker = with_quick_acknowledgements(replaced.worker)
    read_changed_archives_only()
    importlib.invalidate_caches()  # once for all processes
    gc.freeze()
    replaced.manager()


def read_changed_archives_only() -> None:
    """From now on, `importlib.invalidate_caches` reads an archive again only if it has changed."""
    read = zipimporter.invalidate_caches
    seen: dict[tuple[str, str], tuple[int, int] | None] = {}

    def read_if_changed(importer: zipimporter) -> None:
        path, state = (importer.archive, importer.prefix), _state(importer.archive)
        if state is None or seen.get(path) != state:
            read(importer)
            seen[path] = state

    cast(Any, zipimporter).invalidate_caches = read_if_changed


def with_quick_acknowledgements(run: RunTask) -> RunTask:
    """`run`, with a socket that acknowledges the JVM's small packets at once."""

    def run_acknowledging(connection: socket.socket, is_authenticated: bool) -> int:
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):  # Linux only; the kernel may turn it off again later
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return run(connection, is_authenticated)

    return run_acknowledging


def _state(archive: str) -> tuple[int, int] | None:
    """Size and time of change. None if the file is gone."""
    try:
        status = Path(archive).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


if __name__ == "__main__":
    main()
