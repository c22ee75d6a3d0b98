"""Resources that all partition logs of one log directory share."""

import errno
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.duration_histogram import DurationHistogram
from ottla_broker.log.disk import Disk
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.segment import Segment
from ottla_broker.log.tail_cache import TailBudget
from ottla_broker.runtime import Runtime

_EXHAUSTED: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
INDEXES_IN_MEMORY: Final = 256
"""Closed segments whose indexes stay in memory; a full segment of 1 GiB has 5 MiB of them."""


@dataclass(slots=True)
class Storage:
    """The disk, the runtime and the open files. `tails`: memory for the newest batches of each log.

    `write_recovery_points`: writes the directory's checkpoint file and returns when it is durable.
    A log calls it before it is truncated below its recovery point. Otherwise a restart after a
    crash would trust batches below the old recovery point that were written later, unflushed.
    """

    disk: Disk
    runtime: Runtime
    write_recovery_points: Callable[[], None] = lambda: None
    files: OpenFiles = field(init=False)
    tails: TailBudget = field(default_factory=TailBudget)
    flush_times: DurationHistogram = field(default_factory=DurationHistogram)
    _indexed: OrderedDict[int, Segment] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.files = OpenFiles(self.disk)

    def keep_indexes(self, segment: Segment) -> None:
        """Keeps a closed segment's indexes in memory until enough others have been read after
        it."""
        self._indexed[id(segment)] = segment
        self._indexed.move_to_end(id(segment))
        if len(self._indexed) > INDEXES_IN_MEMORY:
            self._indexed.popitem(last=False)[1].unload_indexes()


def is_out_of_resources(error: OSError) -> bool:
    """True if a call failed because the disk is full or file descriptors are exhausted, which is
    temporary and no fault of the disk."""
    return error.errno in _EXHAUSTED
