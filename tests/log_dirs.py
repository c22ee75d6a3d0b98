"""Log directories opened in a test's own process."""

from collections.abc import Callable

from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import Disk, OsDisk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.runtime import Runtime


def open_log_dir(
    path: object,
    *,
    disk: Disk | None = None,
    runtime: Runtime | None = None,
    node_id: int = 1,
    cluster_id: str | None = None,
    config_of: Callable[[str], LogConfig] = lambda _: LogConfig(),
) -> LogDir:
    """Attaches a log directory and loads all its partitions. Raises LogDirError: see
    `LogDir.attach`.
    """
    opened = LogDir.attach(
        str(path), disk=disk or OsDisk(), runtime=runtime or Runtime(), node_id=node_id, cluster_id=cluster_id
    )
    opened.load(config_of)
    return opened
