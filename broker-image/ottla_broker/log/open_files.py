"""Open files, at most so many: a broker with thousands of partitions keeps descriptors only for those in use."""

import errno
import resource
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from ottla_broker.log.disk import Disk, File

LARGEST_LIMIT: Final = 4_096


def affordable() -> int:
    """Half of the descriptors that this process may have; the others are for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LARGEST_LIMIT if soft == resource.RLIM_INFINITY else max(min(soft // 2, LARGEST_LIMIT), 16)


class OpenFiles:
    """Files by path, opened at first use for reading and writing; the one unused for longest is closed when `limit` is passed.

    Belongs to the protocol's thread. Calls made off that thread (fsync) open the file for themselves: any descriptor of a file
    syncs all of it.
    """

    __slots__ = ("_open", "disk", "limit")

    def __init__(self, disk: Disk, limit: int | None = None) -> None:
        self.disk = disk
        self.limit = affordable() if limit is None else limit
        self._open: OrderedDict[str, File] = OrderedDict()

    def get(self, path: str) -> File:
        """The open file. FileNotFoundError when there is none."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._keep(path, create=False)

    def create(self, path: str) -> File:
        """The open file; made empty when there was none."""
        return self._open.get(path) or self._keep(path, create=True)

    def _keep(self, path: str, *, create: bool) -> File:
        try:
            file = self.disk.open(path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                raise
            self.close_all()  # connections have taken more than their half
            file = self.disk.open(path, create=create)
        self._open[path] = file
        if len(self._open) > self.limit:
            self._open.popitem(last=False)[1].close()
        return file

    def close(self, path: str) -> None:
        """Closes one file if it is open; called before a rename or a removal."""
        if (file := self._open.pop(path, None)) is not None:
            file.close()

    def close_all(self) -> None:
        while self._open:
            with suppress(OSError):
                self._open.popitem()[1].close()

    def __len__(self) -> int:
        return len(self._open)
