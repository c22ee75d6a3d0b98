"""A coordinator's reads and writes of its partition of an internal topic."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.same_turn import SameTurnFuture
from ottla_broker.wire.batch import Buffer, iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch, estimate_size

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 20
BATCH_BYTES = 512 << 10
"""Approximate largest size of the batches that writes of one event loop iteration share; a single
write is never split.
"""
Write = SameTurnFuture[ErrorCode]
"""Completes when the records are replicated, with `none` or the error to return to clients of the
coordinator; it never raises.
"""


class Journal(Protocol):
    """`epoch`: the leader epoch in which it is valid."""

    topic: str
    partition: int
    epoch: int

    async def wait_until_recovered(self) -> None:
        """Returns when every acknowledged record can be read. Raises KafkaError when leadership was
        lost.
        """
        ...

    def append(self, batch: bytes) -> Awaitable[int]:
        """Appends to the leader's log at once: after a KafkaError of the call itself the log does
        not have the batch. The result is the base offset, once the batch is replicated; after a
        KafkaError of the result it may or may not become committed.
        """
        ...

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def high_watermark(self) -> int: ...

    def read(self) -> Iterator[Buffer]:
        """All batches from the log's start to its end, in chunks of whole batches."""
        ...


class PartitionJournal:
    """A partition that this broker leads, in most cases of an internal topic, appended to with
    acks=all. Valid in the leader epoch in which it is created: in a later one a coordinator loads
    the whole partition again.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.epoch = partition.leader_epoch
        self.topic = partition.topic
        self.partition = partition.partition

    def _check_leading(self) -> None:
        if not self._partition.is_leader or self._partition.leader_epoch != self.epoch:
            raise KafkaError(
                ErrorCode.not_leader_or_follower, f"{self._partition} is led by another broker or in another epoch"
            )

    async def wait_until_recovered(self) -> None:
        """Returns when everything that was acknowledged in earlier epochs is below the high
        watermark. Raises NOT_LEADER_OR_FOLLOWER."""
        self._check_leading()
        partition = self._partition
        await partition.wait_in_epoch(partition.read_waiters, lambda: partition.has_reached_epoch_start)

    def append(self, batch: bytes) -> Awaitable[int]:
        """The base offset, once the whole ISR has the batch. Raises KafkaError."""
        self._check_leading()
        appended = self._partition.append_records(batch, acks=ALL_REPLICAS, from_client=False)
        waiting = self._partition.commit_future(appended)
        if waiting is not None:
            return _wait_until_replicated(waiting, appended.first_offset)
        replicated: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        replicated.set_result(appended.first_offset)
        return replicated

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self._partition.log.end

    @property
    def high_watermark(self) -> int:
        return self._partition.log.high_watermark

    def delete_records_before(self, offset: int) -> None:
        """Deletes the records below `offset` that are replicated. Raises NOT_LEADER_OR_FOLLOWER."""
        self._check_leading()
        log = self._partition.log
        if (offset := min(offset, log.high_watermark)) > log.start:
            log.delete_records_before(offset)
            self._partition.notify_log_start_change()

    def read(self) -> Iterator[Buffer]:
        """Reads all batches in chunks of about a MiB, from the log's start to its present end.

        Records above the high watermark are read too: they will be committed, or another broker
        will be elected. So a write that was never acknowledged may take effect.
        """
        log = self._partition.log
        offset, end = log.start, log.end
        while offset < end:
            data = log.read(offset, READ_BYTES, up_to=end)
            if not data:
                return
            yield data
            for _, header in iter_batches(data):
                offset = header.next_offset


async def _wait_until_replicated(waiting: Awaitable[object], offset: int) -> int:
    await waiting
    return offset


class JournalWriter:
    """Writes records to one journal. Writes of one event loop iteration share a batch, and several
    batches may be in flight. `apply` changes the state in memory once a write is replicated, in the
    order of the writes. It is not called for a write that fails or is not replicated in time."""

    def __init__(self, journal: Journal, *, timeout_ms: int) -> None:
        self._journal = journal
        self._timeout_ms = timeout_ms
        self._pending: list[_PendingWrite] = []
        self._running: set[asyncio.Task[None]] = set()

    def write_records(self, records: Sequence[Record], *, apply: Callable[[], None] | None = None) -> Write:
        return self._add(_PendingWrite(records, apply))

    def write_at_once(self, records: Sequence[Record], *, apply: Callable[[], None] | None = None) -> Write:
        """Like `write_records`, but appends in this turn of the event loop, after the writes that
        were requested before.
        """
        future = self.write_records(records, apply=apply)
        self._send()
        return future

    def write_batch(self, batch: bytes, *, apply: Callable[[], None] | None = None) -> Write:
        """Like `write_records`, but writes an encoded batch: records of a transaction, or its end
        marker.
        """
        return self._add(_PendingWrite((), apply, batch))

    def append_records(self, records: Sequence[Record]) -> Write:
        """Appends to the leader's log at once, after all writes that were requested before, so that
        the caller may change its state before the records are replicated. Raises KafkaError, and
        then the log does not have the records. Returns a future like that of `write_records`.
        """
        self._send()
        write = _PendingWrite(records, None)
        try:
            replicated = self._journal.append(encode_batch(records))
        except KafkaError as reason:
            raise KafkaError(to_coordinator_error(reason.code), reason.message) from reason
        self._finish([write], replicated)
        return write.future

    def _add(self, write: "_PendingWrite") -> Write:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._send)
        self._pending.append(write)
        return write.future

    def _send(self) -> None:
        collected, self._pending = self._pending, []
        together: list[_PendingWrite] = []
        size = 0
        for write in collected:
            if together and (size + write.size > BATCH_BYTES or write.batch or together[-1].batch):
                self._start(together)
                together, size = [], 0
            together.append(write)
            size += write.size
        if together:
            self._start(together)

    def _start(self, writes: list["_PendingWrite"]) -> None:
        records = [record for write in writes for record in write.records]
        batch = writes[0].batch or (encode_batch(records) if records else b"")
        try:
            replicated = self._journal.append(batch) if batch else None
        except KafkaError as reason:
            self._fail(writes, reason)
        except BaseException:  # a defect, which is reported; requests must not wait forever
            _set_result(writes, ErrorCode.unknown_server_error)
            raise
        else:
            self._finish(writes, replicated)

    def _finish(self, writes: list["_PendingWrite"], replicated: Awaitable[int] | None) -> None:
        is_replicated = isinstance(replicated, asyncio.Future) and replicated.done() and not replicated.exception()
        if is_replicated and not self._running:  # otherwise after those that are in flight
            _apply(writes)
            _set_result(writes, ErrorCode.none)
            return
        task = asyncio.get_running_loop().create_task(self._await_replication(writes, replicated))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _await_replication(self, writes: list["_PendingWrite"], replicated: Awaitable[int] | None) -> None:
        code = ErrorCode.unknown_server_error  # unless overwritten: requests must not wait forever
        try:
            if replicated is not None:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await replicated
            _apply(writes)
            code = ErrorCode.none
        except KafkaError as reason:
            self._fail(writes, reason)
        except TimeoutError:
            logger.warning("write to %s was not replicated within %d ms", self._name, self._timeout_ms)
            code = to_coordinator_error(ErrorCode.request_timed_out)
        finally:
            _set_result(writes, code)

    def _fail(self, writes: list["_PendingWrite"], reason: KafkaError) -> None:
        logger.warning("write to %s failed: %s", self._name, reason)
        _set_result(writes, to_coordinator_error(reason.code))

    @property
    def _name(self) -> str:
        return f"{self._journal.topic}-{self._journal.partition}"


def _apply(writes: "list[_PendingWrite]") -> None:
    for write in writes:
        if write.apply is not None:
            write.apply()


def _set_result(writes: "list[_PendingWrite]", code: ErrorCode) -> None:
    for write in writes:
        write.future.complete(code)


async def wait_for_write(write: Write | None) -> None:
    """Returns when the write, if there is one, has succeeded. Raises KafkaError if it fails. A
    cancelled caller, such as that of a closed connection, does not cancel the write."""
    if write is None:
        return
    error = write.result() if write.done() else await write.shield()
    if error is not ErrorCode.none:
        raise KafkaError(error)


@dataclass(slots=True)
class _PendingWrite:
    """`batch`: written as it is and alone, in place of `records`."""

    records: Sequence[Record]
    apply: Callable[[], None] | None
    batch: bytes = b""
    future: Write = field(default_factory=SameTurnFuture)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.batch) + sum(map(estimate_size, self.records))


def to_coordinator_error(code: ErrorCode) -> ErrorCode:
    """Translates an error of the coordinator's partition, which clients do not know, into one that
    makes a client find the coordinator again, or give up where retries cannot help."""
    return _COORDINATOR_ERRORS.get(code, code)


_COORDINATOR_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.invalid_fetch_size: ErrorCode.unknown_server_error,
}
