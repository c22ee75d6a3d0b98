"""What all partition logs of one log directory share."""

import errno
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla_broker.log.disk import Disk
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.tail_cache import TailBudget
from ottla_broker.runtime import Runtime

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog
    from ottla_broker.log.segment import Segment

_PASSES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
INDEXES_IN_MEMORY: Final = 256  # closed segments; a full segment of 1 GiB has 5 MiB of them


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
    _read: "OrderedDict[int, Segment]" = field(default_factory=OrderedDict)
    write_recovery_points: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.files = OpenFiles(self.disk)

    def reads(self, segment: "Segment") -> None:
        """A closed segment is being read: its indexes stay in memory until enough others have been read after it."""
        self._read[id(segment)] = segment
        self._read.move_to_end(id(segment))
        if len(self._read) > INDEXES_IN_MEMORY:
            self._read.popitem(last=False)[1].unload_indexes()


def is_full(error: OSError) -> bool:
    """Whether a call failed for want of room (or of file descriptors): that passes, and is no fault of the disk."""
    return error.errno in _PASSES
