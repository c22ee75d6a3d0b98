"""What the leaders of partitions appended, and behind what: every log that a source ever had, also those that it has lost.

A leader epoch has one leader, whose log only grows in it: so epoch and offset name a batch, and the epochs that the leader knew when it first appended in one
name all that lies below. A copy is a copy of something only if it is one of these logs from its beginning to its end.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import iter_batches

Batch = tuple[int, bytes]  # base offset, what is behind the leader epoch in its header
BEHIND_EPOCH = 16
READ_BYTES = 1 << 20


class Ancestry:
    """Of all clusters of a run: ids tell their topics apart."""

    def __init__(self) -> None:
        self._batches: dict[tuple[UUID, int], dict[int, list[Batch]]] = {}  # by leader epoch, in their order
        self._below: dict[
            tuple[UUID, int], dict[int, list[int]]
        ] = {}  # epoch → those before it in that log, the newest first

    @contextmanager
    def appends(self) -> Iterator[None]:
        """Inside of it everything that leaders append for producers is written down."""
        properly = Partition.append_records

        def append(partition: Partition, *arguments: Any, **named: Any) -> LogAppendInfo:
            appended = properly(partition, *arguments, **named)
            if not appended.is_duplicate:
                self._appended(partition, appended)
            return appended

        with patch.object(Partition, "append_records", append):
            yield

    def _appended(self, partition: Partition, appended: LogAppendInfo) -> None:
        log, epoch = partition.log, partition.leader_epoch
        place = partition.topic_id, partition.partition
        below = self._below.setdefault(place, {})
        if epoch not in below:
            below[epoch] = [known for known, _ in reversed(log.epochs.entries()) if known < epoch]
        data = log.read(appended.first_offset, READ_BYTES, up_to=appended.last_offset + 1)
        mine = self._batches.setdefault(place, {}).setdefault(epoch, [])
        mine += [
            (header.base_offset, bytes(data[at + BEHIND_EPOCH : at + header.size])) for at, header in iter_batches(data)
        ]

    def has(self, topic_id: UUID, partition: int, log: Sequence[Batch]) -> str:
        """Whether some leader's log had exactly these batches in a row; if not, where it seems to part from all of them, in words."""
        place = topic_id, partition
        if not log:
            return ""
        deepest = len(log)
        for epoch, known in self._batches.get(place, {}).items():
            if log[-1] in known:
                left = self._unmatched(place, epoch, log)
                if not left:
                    return ""
                deepest = min(deepest, left)
        return f"no log of {topic_id} ever had the batch at {log[deepest - 1][0]} {'before what follows it' if deepest < len(log) else 'there'}"

    def _unmatched(self, place: tuple[UUID, int], epoch: int, log: Sequence[Batch]) -> int:
        """How many of `log`, from its beginning on, are not in the log that this epoch's leader had when the last of them was appended."""
        left = len(log)
        for of in self._downward(place, epoch):
            below = [batch for batch in self._batches[place].get(of, ()) if batch[0] <= log[left - 1][0]]
            while left and below and below[-1] == log[left - 1]:
                below.pop()
                left -= 1
            if below or not left:
                return left
        return left

    def _downward(self, place: tuple[UUID, int], epoch: int) -> Iterator[int]:
        """This epoch and those below it. A log whose start has moved had forgotten the oldest; their own leaders had not."""
        yield epoch
        below = self._below[place].get(epoch, [])
        yield from below[:-1]
        if below:
            yield from self._downward(place, below[-1])
