"""How much room there is below a log directory."""

import os
from typing import NamedTuple


class FileSystemSpace(NamedTuple):
    """Bytes of the file system below a directory; -1 where it cannot be asked."""

    total: int
    usable: int


def read_file_system_space(path: str) -> FileSystemSpace:
    """Blocks. A simulated disk has no file system, and so no answer."""
    try:
        found = os.statvfs(path)
    except OSError:
        return FileSystemSpace(-1, -1)
    return FileSystemSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
