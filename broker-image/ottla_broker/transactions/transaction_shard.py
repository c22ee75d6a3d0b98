"""One partition of `__transaction_state` and its transactional ids: loads them, writes their
transitions, and completes every decided transaction.

`transaction_metadata` decides. A transition takes effect once its record is replicated. After a
decision (PrepareCommit, PrepareAbort) the shard requests markers in the transaction's partitions,
and then writes the completion. If the next coordinator of the partition finds a decision without
completion in the log, it completes the transaction.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.coordination.journal import Journal, JournalWriter, Write, wait_for_write
from ottla_broker.coordination.loading import ShardState, apply_records, check_shard_serving, load_state
from ottla_broker.runtime import Runtime
from ottla_broker.transactions.transaction_config import TransactionConfig
from ottla_broker.transactions.transaction_metadata import DECIDED_STATES, TransactionMetadata, complete
from ottla_broker.transactions.transaction_records import (
    decode_transaction,
    decode_transaction_key,
    encode_transaction,
    encode_transaction_key,
)
from ottla_broker.wire.batch import BatchHeader
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record

logger = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.1
"""Pause between two attempts to write a completion."""

WriteMarkers = Callable[[TransactionMetadata, int], Awaitable[None]]
"""Called with a decided transaction and the coordinator's epoch. Returns when every partition of
the transaction has its marker or needs none any more.
"""
Decide = Callable[[TransactionMetadata | None], TransactionMetadata]


@dataclass(slots=True)
class TransactionEntry:
    """`metadata`: None until the first write of a new id is replicated. `pending`: a transition or
    the id's removal is being written, or a decided transaction is being completed."""

    metadata: TransactionMetadata | None = None
    pending: bool = False


class TransactionShard:
    def __init__(
        self, journal: Journal, runtime: Runtime, config: TransactionConfig, write_markers: WriteMarkers
    ) -> None:
        self.partition = journal.partition
        self.state = ShardState.loading
        self.entries: dict[str, TransactionEntry] = {}
        self._journal = journal
        self._runtime = runtime
        self._writes = JournalWriter(journal, timeout_ms=config.write_timeout_ms)
        self._write_markers = write_markers
        self._completions = BackgroundTasks()
        self._idle: dict[str, asyncio.Future[None]] = {}

    # -- loading and closing -----------------------------------------------------------------------

    async def load(self) -> None:
        """Returns when the shard serves, could not be loaded, or is closed. Also begins to complete
        the decided transactions of the partition."""
        if self._is_closed():
            return
        self.state = await load_state(self._journal, self._load_steps(), self._is_closed)
        if self.state is not ShardState.serving:
            return
        for transactional_id, entry in self.entries.items():
            if entry.metadata is not None and entry.metadata.state in DECIDED_STATES:
                self._start_completion(transactional_id, entry, entry.metadata)

    def _is_closed(self) -> bool:
        return self.state is ShardState.closed

    def _load_steps(self) -> Iterator[None]:
        for chunk in self._journal.read():
            yield from apply_records(chunk, self._apply_record)

    def _apply_record(self, header: BatchHeader, key: bytes | None, value: bytes | None) -> None:
        transactional_id = None if key is None or header.is_control else decode_transaction_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.entries.pop(transactional_id, None)
        else:
            self.entries[transactional_id] = TransactionEntry(decode_transaction(value))

    def close(self) -> None:
        """Called when this broker no longer leads the partition, is about to load it again, or
        stops."""
        self.state = ShardState.closed
        self._completions.cancel_soon()

    def check_serving(self) -> None:
        """Raises KafkaError unless the shard serves requests."""
        check_shard_serving(self.state)

    # -- transitions -------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """The replicated state; None for an unknown id. Raises what `check_serving` raises."""
        self.check_serving()
        entry = self.entries.get(transactional_id)
        return None if entry is None else entry.metadata

    async def transition(self, transactional_id: str, decide: Decide) -> TransactionMetadata:
        """The state after `decide`, once it is replicated; at once if `decide` changes nothing.
        Raises what `decide` raises; CONCURRENT_TRANSACTIONS while another transition of the id is
        in flight or its transaction is being completed, then also in place of INVALID_TXN_STATE;
        and, when the write fails, the error for the client.
        """
        self.check_serving()
        entry = self.entries.get(transactional_id) or TransactionEntry()
        try:
            new = decide(entry.metadata)
        except KafkaError as reason:
            if entry.pending and reason.code is ErrorCode.invalid_txn_state:
                raise _concurrent_error() from None
            raise
        if entry.pending:
            raise _concurrent_error()
        if new is entry.metadata:
            return new
        self.entries[transactional_id] = entry
        await wait_for_write(self._write(transactional_id, entry, new))
        return new

    def _write(self, transactional_id: str, entry: TransactionEntry, new: TransactionMetadata) -> Write:
        entry.pending = True
        write = self._writes.write_at_once(
            [self._record(transactional_id, encode_transaction(new))],
            apply=partial(self._apply, transactional_id, entry, new),
        )
        if write.done():
            self._on_written(transactional_id, entry, write)
        else:
            write.add_done_callback(partial(self._on_written, transactional_id, entry))
        return write

    def _record(self, transactional_id: str, value: bytes | None) -> Record:
        return Record(self._runtime.now_ms(), encode_transaction_key(transactional_id), value)

    def _apply(self, transactional_id: str, entry: TransactionEntry, new: TransactionMetadata) -> None:
        entry.metadata = new
        if new.state in DECIDED_STATES and self.state is ShardState.serving:
            self._start_completion(transactional_id, entry, new)
        else:
            self._set_idle(transactional_id, entry)

    def _on_written(self, transactional_id: str, entry: TransactionEntry, write: Write) -> None:
        if write.result() is ErrorCode.none:
            return
        self._set_idle(transactional_id, entry)
        if entry.metadata is None and self.entries.get(transactional_id) is entry:
            del self.entries[transactional_id]

    def _set_idle(self, transactional_id: str, entry: TransactionEntry) -> None:
        entry.pending = False
        if (idle := self._idle.pop(transactional_id, None)) is not None:
            idle.set_result(None)

    async def wait_until_idle(self, transactional_id: str, timeout_s: float) -> None:
        """Returns when no transition of the id is in flight and no transaction of it is being
        completed, or after `timeout_s`."""
        entry = self.entries.get(transactional_id)
        if entry is not None and entry.pending:
            idle = self._idle.setdefault(transactional_id, asyncio.get_running_loop().create_future())
            await asyncio.wait([idle], timeout=timeout_s)

    # -- completion of decided transactions --------------------------------------------------------

    def _start_completion(self, transactional_id: str, entry: TransactionEntry, decided: TransactionMetadata) -> None:
        entry.pending = True
        self._completions.start(self._complete(transactional_id, entry, decided))

    async def _complete(self, transactional_id: str, entry: TransactionEntry, decided: TransactionMetadata) -> None:
        await self._write_markers(decided, self._journal.epoch)
        while self.state is ShardState.serving:
            completed = complete(decided, now_ms=self._runtime.now_ms())
            # A write outlives this task, which is cancelled when another broker takes over.
            if await asyncio.shield(self._write(transactional_id, entry, completed)) is ErrorCode.none:
                break
            entry.pending = True  # until it is written
            await asyncio.sleep(RETRY_PAUSE_S)

    # -- expiry ------------------------------------------------------------------------------------

    def find_timed_out(self, now_ms: int) -> list[str]:
        return [
            transactional_id
            for transactional_id, entry in self.entries.items()
            if not entry.pending and entry.metadata is not None and entry.metadata.has_timed_out(now_ms)
        ]

    async def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Removes ids without an open transaction whose state has not changed for
        `expiration_ms`."""
        expired = [
            (transactional_id, entry)
            for transactional_id, entry in self.entries.items()
            if not entry.pending and entry.metadata is not None and entry.metadata.has_expired(now_ms, expiration_ms)
        ]
        if not expired:
            return
        for _, entry in expired:
            entry.pending = True

        def apply() -> None:
            for transactional_id, entry in expired:
                del self.entries[transactional_id]
                self._set_idle(transactional_id, entry)

        tombstones = [self._record(transactional_id, None) for transactional_id, _ in expired]
        error = await asyncio.shield(self._writes.write_records(tombstones, apply=apply))
        if error is not ErrorCode.none:
            for transactional_id, entry in expired:
                self._set_idle(transactional_id, entry)


def _concurrent_error() -> KafkaError:
    return KafkaError(ErrorCode.concurrent_transactions, "another change of the transaction is in progress")
