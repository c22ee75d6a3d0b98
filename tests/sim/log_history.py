"""Every log that a leader ever had, including records lost later.

A leader epoch has one leader, whose log only grows in it. So epoch and offset identify a batch, and
the epochs that the leader knew at its first append identify everything below. A copy
is valid only if it equals one of these logs from its first to its last batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import iter_batches

Batch = tuple[int, bytes]  # base offset, and the bytes after the header's leader epoch
AFTER_LEADER_EPOCH = 16
READ_BYTES = 1 << 20


class LogHistory:
    """The logs of all clusters of a run; topic ids tell topics of the same name apart."""

    def __init__(self) -> None:
        self._batches: dict[tuple[UUID, int], dict[int, list[Batch]]] = {}  # by leader epoch, in order
        # epoch → earlier epochs of that log, newest first
        self._below: dict[tuple[UUID, int], dict[int, list[int]]] = {}

    @contextmanager
    def record_appends(self) -> Iterator[None]:
        """Records everything that leaders append for producers inside the block."""
        append_records, append_small_batches = Partition.append_records, Partition.append_small_batches

        def append(partition: Partition, *arguments: Any, **named: Any) -> LogAppendInfo:
            appended = append_records(partition, *arguments, **named)
            if not appended.is_duplicate:
                self._record(partition, appended.first_offset, appended.last_offset + 1)
            return appended

        def append_joined(partition: Partition, batches: Sequence[bytearray]) -> Sequence[int]:
            first_offsets = append_small_batches(partition, batches)
            if first_offsets:
                self._record(partition, first_offsets[0], partition.log.end)
            return first_offsets

        with (
            patch.object(Partition, "append_records", append),
            patch.object(Partition, "append_small_batches", append_joined),
        ):
            yield

    def _record(self, partition: Partition, first: int, end: int) -> None:
        log, epoch = partition.log, partition.leader_epoch
        tp = partition.topic_id, partition.partition
        below = self._below.setdefault(tp, {})
        if epoch not in below:
            below[epoch] = [known for known, _ in reversed(log.epochs.entries()) if known < epoch]
        data = log.read(first, READ_BYTES, up_to=end)
        mine = self._batches.setdefault(tp, {}).setdefault(epoch, [])
        mine += [
            (header.base_offset, bytes(data[at + AFTER_LEADER_EPOCH : at + header.size]))
            for at, header in iter_batches(data)
        ]

    def describe_mismatch(self, topic_id: UUID, partition: int, log: Sequence[Batch]) -> str:
        """Empty if some leader's log had exactly these batches in sequence; otherwise where it
        differs from all of them.
        """
        tp = topic_id, partition
        if not log:
            return ""
        unmatched = len(log)
        for epoch, known in self._batches.get(tp, {}).items():
            if log[-1] in known:
                remaining = self._unmatched(tp, epoch, log)
                if not remaining:
                    return ""
                unmatched = min(unmatched, remaining)
        context = "followed by these batches" if unmatched < len(log) else "as its last one"
        return f"no log of {topic_id} ever had the batch at {log[unmatched - 1][0]} {context}"

    def _unmatched(self, tp: tuple[UUID, int], epoch: int, log: Sequence[Batch]) -> int:
        """The number of batches at the start of `log` that are not in the log which this epoch's
        leader had.
        """
        remaining = len(log)
        for earlier in self._epochs_downward(tp, epoch):
            below = [batch for batch in self._batches[tp].get(earlier, ()) if batch[0] <= log[remaining - 1][0]]
            while remaining and below and below[-1] == log[remaining - 1]:
                below.pop()
                remaining -= 1
            if below or not remaining:
                return remaining
        return remaining

    def _epochs_downward(self, tp: tuple[UUID, int], epoch: int) -> Iterator[int]:
        """Yields this epoch and earlier ones, newest first.

        A leader whose log start had advanced did not have the oldest epochs; the leaders of those
        epochs did.
        """
        yield epoch
        below = self._below[tp].get(epoch, [])
        yield from below[:-1]
        if below:
            yield from self._epochs_downward(tp, below[-1])
