"""What all partition logs of one log directory share."""

import errno
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.log.disk import Disk
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.tail_cache import TailBudget
from ottla_broker.runtime import Runtime

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(slots=True)
class Storage:
    """The disk, the runtime, the open files and the memory for tails."""

    disk: Disk
    runtime: Runtime
    files: OpenFiles = field(init=False)
    tails: TailBudget = field(default_factory=TailBudget)

    def __post_init__(self) -> None:
        self.files = OpenFiles(self.disk)


def is_full(error: OSError) -> bool:
    """Whether a write failed for want of room: that passes, and is no fault of the disk."""
    return error.errno in _FULL
