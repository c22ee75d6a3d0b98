"""What all partition logs of one log directory share."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla_broker.log.disk import Disk
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.tail_cache import TailBudget
from ottla_broker.runtime import Runtime

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(slots=True)
class Storage:
    """The disk, the runtime, the open files and the memory for tails. `write_recovery_points`: called, and waited for, before a log is
    truncated below its recovery point; otherwise a crash soon after would take what replaces the old end for something long flushed."""

    disk: Disk
    runtime: Runtime
    files: OpenFiles = field(init=False)
    tails: TailBudget = field(default_factory=TailBudget)
    rolled: "list[PartitionLog]" = field(
        default_factory=list
    )  # logs with a segment closed since maintenance looked last
    write_recovery_points: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.files = OpenFiles(self.disk)


def is_full(error: OSError) -> bool:
    """Whether a write failed for want of room: that passes, and is no fault of the disk."""
    return error.errno in _FULL
