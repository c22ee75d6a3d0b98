"""How much room there is below a log directory."""

import os
from typing import NamedTuple


class Space(NamedTuple):
    """Bytes of the file system below a directory; -1 where it cannot be asked."""

    total: int
    usable: int


def space_below(path: str) -> Space:
    """Blocks. A simulated disk has no file system, and so no answer."""
    try:
        found = os.statvfs(path)
    except OSError:
        return Space(-1, -1)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
