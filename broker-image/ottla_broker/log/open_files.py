"""A bounded set of open files, so that a broker with thousands of partitions keeps descriptors only
for those in use.
"""

import errno
import resource
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from ottla_broker.log.disk import Disk, File

MAX_OPEN_FILES: Final = 4_096
MIN_OPEN_FILES: Final = 16


def default_limit() -> int:
    """Half of the descriptors that this process may have, at least MIN_OPEN_FILES and at most
    MAX_OPEN_FILES. With one log directory the others are for connections. Each further directory
    has a set of its own, and so has each cleaning.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else max(min(soft // 2, MAX_OPEN_FILES), MIN_OPEN_FILES)


class OpenFiles:
    """Files by path, opened at first use for reading and writing. Above `limit` the least recently
    used is closed.

    Two threads must not use it at the same time. That of a log directory belongs to the event
    loop's thread; a cleaning has one of its own. Calls in other threads (fsync) open the file for
    themselves: any descriptor of a file syncs all of it.
    """

    __slots__ = ("_open", "disk", "limit")

    def __init__(self, disk: Disk, limit: int | None = None) -> None:
        self.disk = disk
        self.limit = default_limit() if limit is None else limit
        self._open: OrderedDict[str, File] = OrderedDict()

    def get(self, path: str) -> File:
        """The open file. Raises FileNotFoundError if it does not exist."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._open_file(path, create=False)

    def create(self, path: str) -> File:
        """The open file; an empty one is created if it does not exist."""
        return self._open.get(path) or self._open_file(path, create=True)

    def _open_file(self, path: str, *, create: bool) -> File:
        try:
            file = self.disk.open(path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                raise
            # Connections have taken more than their half.
            self.close_all()
            file = self.disk.open(path, create=create)
        self._open[path] = file
        if len(self._open) > self.limit:
            self._open.popitem(last=False)[1].close()
        return file

    def close(self, path: str) -> None:
        """Closes a file, if it is open: before it is renamed or removed."""
        if (file := self._open.pop(path, None)) is not None:
            file.close()

    def close_all(self) -> None:
        while self._open:
            with suppress(OSError):
                self._open.popitem()[1].close()

    def __len__(self) -> int:
        return len(self._open)
