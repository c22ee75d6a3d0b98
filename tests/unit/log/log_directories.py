"""Opening a log directory in a test, and leaving it in order or as SIGKILL does."""

import asyncio
from pathlib import Path

from ottla_broker.log.disk import OsDisk
from ottla_broker.log.log_dir import LogDir
from tests.log_dirs import open_log_dir
from tests.unit.log.log_fixtures import (
    Clock,
    runtime,
)


def open_directory(
    path: Path,
    *,
    node: int = 1,
    cluster: str | None = "cluster",
    clock: Clock | None = None,
    disk: OsDisk | None = None,
) -> LogDir:
    return open_log_dir(path, disk=disk, runtime=runtime(clock), node_id=node, cluster_id=cluster)


def close_directory(directory: LogDir) -> None:
    asyncio.run(directory.close())


def kill_directory(directory: LogDir) -> None:
    """Leaves the directory as SIGKILL does: nothing more is written, and the lock is released."""
    directory.storage.files.close_all()
    directory._lock.release()


def reopen_after_kill(directory: LogDir, path: Path) -> LogDir:
    kill_directory(directory)
    return open_directory(path)
