"""How a coordinator writes to its partition of `__consumer_offsets`, and reads it back."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch

log = logging.getLogger(__name__)

BATCH_BYTES = 512 << 10
"""Writes of one turn of the loop share batches up to about this size; a single write is never split."""


class Journal(Protocol):
    partition: int

    async def wait_until_recovered(self) -> None:
        """Returns when everything that was ever acknowledged can be read. KafkaError when that will not be."""
        ...

    async def append(self, batch: bytes) -> int:
        """Base offset of the batch, once it is replicated. KafkaError otherwise: then it may or may not come to be."""
        ...

    def read(self) -> Iterator[Buffer]:
        """All batches from the log's start to its end, whole, in chunks of some size."""
        ...


class JournalWriter:
    """The writes to one journal. Those of one turn of the event loop go into one batch, many batches can be on their
    way, and what a write changes in memory (`apply`) is done when it is replicated, in the order of writing."""

    def __init__(self, journal: Journal, *, timeout_ms: int) -> None:
        self._journal = journal
        self._timeout_ms = timeout_ms
        self._collected: list[_Write] = []
        self._running: set[asyncio.Task[None]] = set()

    def write_records(
        self, records: Sequence[Record], *, apply: Callable[[], None] | None = None
    ) -> asyncio.Future[ErrorCode]:
        """Ends with `none`, or with the error a client of the coordinator is to see; it never raises."""
        loop = asyncio.get_running_loop()
        write = _Write(records, apply, loop.create_future())
        if not self._collected:
            loop.call_soon(self._send)
        self._collected.append(write)
        return write.done

    def _send(self) -> None:
        collected, self._collected = self._collected, []
        together: list[_Write] = []
        size = 0
        for write in collected:
            if together and size + write.size > BATCH_BYTES:
                self._start(together)
                together, size = [], 0
            together.append(write)
            size += write.size
        if together:
            self._start(together)

    def _start(self, writes: list["_Write"]) -> None:
        task = asyncio.get_running_loop().create_task(self._append(writes))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _append(self, writes: list["_Write"]) -> None:
        records = [record for write in writes for record in write.records]
        code = ErrorCode.unknown_server_error  # stays when this task dies of something else: nobody must wait for ever
        try:
            if records:
                batch = encode_batch(records)
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await self._journal.append(batch)
            for write in writes:
                if write.apply is not None:
                    write.apply()
            code = ErrorCode.none
        except KafkaError as reason:
            log.warning("__consumer_offsets-%d: %s", self._journal.partition, reason)
            code = seen_by_clients(reason.code)
        except TimeoutError:
            log.warning("__consumer_offsets-%d: not replicated in %d ms", self._journal.partition, self._timeout_ms)
            code = seen_by_clients(ErrorCode.request_timed_out)
        finally:
            for write in writes:
                if not write.done.done():
                    write.done.set_result(code)


class _Write:
    __slots__ = ("apply", "done", "records", "size")

    def __init__(
        self, records: Sequence[Record], apply: Callable[[], None] | None, done: asyncio.Future[ErrorCode]
    ) -> None:
        self.records = records
        self.apply = apply
        self.done = done
        self.size = sum(len(record.key or b"") + len(record.value or b"") + 16 for record in records)


def seen_by_clients(code: ErrorCode) -> ErrorCode:
    """What a failed append means to a client of the coordinator, who knows nothing of the partition behind it: look the
    coordinator up again, or (for what no retry mends) give up."""
    return _SEEN.get(code, code)


_SEEN = {
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
