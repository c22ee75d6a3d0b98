"""The transaction coordinator of a broker: finds the shard that keeps a transactional id and runs
the transaction protocol's requests on it. What a request does to an id, and whether it fences a
producer, is decided in `transaction_metadata`.

Methods raise KafkaError with the error code for the client: INVALID_REQUEST for an empty id,
NOT_COORDINATOR when another broker leads the id's partition or this one has no session with the
controller, COORDINATOR_LOAD_IN_PROGRESS while the partition loads, COORDINATOR_NOT_AVAILABLE before
`__transaction_state` exists and when the partition could not be loaded or written; and those of
`transaction_metadata`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.coordination.journal import Journal
from ottla_broker.coordination.loading import ShardState, load_shard, serving_shards, unload_shard
from ottla_broker.coordination.records import TRANSACTION_STATE_TOPIC, coordinator_partition
from ottla_broker.log.producer_state import EPOCH_BUMP_VERSION
from ottla_broker.runtime import Runtime
from ottla_broker.transactions.transaction_config import TransactionConfig
from ottla_broker.transactions.transaction_metadata import (
    NO_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TxnPartition,
    abort_fenced,
    add_partitions,
    end_transaction,
    find_missing_partitions,
    initialize_producer,
    needs_new_producer_id,
    producer_after_end,
)
from ottla_broker.transactions.transaction_shard import TransactionShard, WriteMarkers
from ottla_broker.wire.batch import NO_PRODUCER_ID
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

UNEVENTFUL_ERRORS = frozenset(
    {ErrorCode.concurrent_transactions, ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping}
)
"""Errors of the abort at a timeout that are not logged: the transaction has ended in another way,
or another transition of the id is in flight."""
END_WAIT_S: Final = 0.1
"""For how long a request waits for the end of the producer's previous transaction."""


@dataclass(eq=False, repr=False)
class TransactionCoordinator:
    """`_partition_count` returns the number of partitions of `__transaction_state`, 0 while it does
    not exist. No request is served while `_is_in_session` returns False. `_transaction_version`
    returns the finalized level of the feature `transaction.version`."""

    _runtime: Runtime
    config: TransactionConfig
    _partition_count: Callable[[], int]
    _is_in_session: Callable[[], bool]
    _generate_producer_id: Callable[[], Awaitable[int]]
    _transaction_version: Callable[[], int]
    _write_markers: WriteMarkers
    _shards: dict[int, TransactionShard] = field(default_factory=dict)
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    _has_started: bool = False

    # -- partitions of __transaction_state ---------------------------------------------------------

    async def load(self, journal: Journal) -> None:
        """Called when this broker begins to lead the journal's partition. Returns when the
        partition's transactional ids are served, or when loading has failed."""
        self._start_expiry()
        shard = TransactionShard(journal, self._runtime, self.config, self._write_markers)
        await load_shard(self._shards, shard, journal, self._loading)

    def unload(self, partition: int) -> None:
        """Called when this broker no longer leads the partition."""
        unload_shard(self._shards, partition)

    def close(self) -> None:
        self._tasks.cancel_soon()
        for partition in list(self._shards):
            self.unload(partition)

    def partition_of(self, transactional_id: str) -> int:
        if (count := self._partition_count()) == 0:
            raise KafkaError(ErrorCode.coordinator_not_available, f"{TRANSACTION_STATE_TOPIC} does not exist yet")
        return coordinator_partition(transactional_id, count)

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise KafkaError(ErrorCode.invalid_request, "the transactional id is empty")
        partition = self.partition_of(transactional_id)
        shard = self._shards.get(partition)
        if shard is None or not self._is_in_session():
            raise KafkaError(
                ErrorCode.not_coordinator,
                f"this broker does not lead {TRANSACTION_STATE_TOPIC}-{partition}, or has no controller session",
            )
        shard.check_serving()
        return shard

    # -- the protocol ------------------------------------------------------------------------------

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        in_two_phases: bool = False,
    ) -> ProducerIdAndEpoch:
        """Returns a producer id and epoch. `expected`: None for a new producer; the present id and
        epoch of a producer that continues after an error (KIP-360). `in_two_phases`: its
        transactions have no timeout (KIP-939). Raises INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED;
        CONCURRENT_TRANSACTIONS while the id's last transaction is being ended;
        COORDINATOR_LOAD_IN_PROGRESS also when the controller gives no producer ids."""
        if in_two_phases:
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms is {timeout_ms}; 1 to {self.config.transaction_max_timeout_ms} is allowed"
                " (transaction.max.timeout.ms)",
            )
        shard = self._shard_of(transactional_id)
        new_id = NO_PRODUCER_ID
        if needs_new_producer_id(shard.find(transactional_id), expected):
            new_id = await self._new_producer_id()

        def decide(current: TransactionMetadata | None) -> TransactionMetadata:
            return initialize_producer(
                current,
                expected,
                timeout_ms=timeout_ms,
                now_ms=self._runtime.now_ms(),
                new_producer_id=new_id,
                transaction_version=self._transaction_version(),
            )

        initialized = await shard.transition(transactional_id, decide)
        if initialized.state is TransactionState.prepare_abort:
            raise KafkaError(ErrorCode.concurrent_transactions, "the former instance's transaction is being aborted")
        return initialized.producer

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TxnPartition],
        *,
        client_version: int,
    ) -> None:
        """Returns when the partitions are in the transaction. Waits up to END_WAIT_S for the end of
        the previous transaction, and only then raises CONCURRENT_TRANSACTIONS. Kafka raises it at
        once: its clients try again after 20 ms, but the end takes only one or two ms."""

        def decide(current: TransactionMetadata | None) -> TransactionMetadata:
            now_ms = self._runtime.now_ms()
            return add_partitions(current, producer, partitions, now_ms=now_ms, client_version=client_version)

        shard = self._shard_of(transactional_id)
        try:
            await shard.transition(transactional_id, decide)
        except KafkaError as reason:
            if reason.code is not ErrorCode.concurrent_transactions:
                raise
            await shard.wait_until_idle(transactional_id, END_WAIT_S)
            await shard.transition(transactional_id, decide)

    def find_missing_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[TxnPartition]
    ) -> frozenset[TxnPartition]:
        """The partitions that are not in the transaction (KIP-890, verification)."""
        current = self._shard_of(transactional_id).find(transactional_id)
        return find_missing_partitions(current, producer, partitions)

    async def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> ProducerIdAndEpoch:
        """Returns the producer id and epoch for the next transaction, when the decision is
        replicated. Markers follow."""
        shard = self._shard_of(transactional_id)
        current = shard.find(transactional_id)
        new_id = NO_PRODUCER_ID
        if current is not None and current.is_epoch_exhausted and client_version >= EPOCH_BUMP_VERSION:
            # A SameTurnTask runs this method, and a request to the controller needs a true task.
            new_id = await asyncio.create_task(self._new_producer_id())

        def decide(current: TransactionMetadata | None) -> TransactionMetadata:
            return end_transaction(
                current,
                producer,
                commit=commit,
                client_version=client_version,
                new_producer_id=new_id,
                now_ms=self._runtime.now_ms(),
            )

        return producer_after_end(await shard.transition(transactional_id, decide))

    async def wait_until_idle(self, transactional_id: str, timeout_s: float) -> None:
        """Returns when no transition of the id is in flight and no transaction of it is being
        completed, or after `timeout_s`; at once if this coordinator does not serve the id."""
        with suppress(KafkaError):
            await self._shard_of(transactional_id).wait_until_idle(transactional_id, timeout_s)

    async def _new_producer_id(self) -> int:
        try:
            return await self._generate_producer_id()
        except KafkaError as reason:
            logger.warning("cannot get producer ids from the controller: %s", reason)
            raise KafkaError(ErrorCode.coordinator_load_in_progress, reason.message) from reason

    # -- administration ----------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Raises TRANSACTIONAL_ID_NOT_FOUND."""
        if (found := self._shard_of(transactional_id).find(transactional_id)) is None:
            raise KafkaError(ErrorCode.transactional_id_not_found, f"transactional id {transactional_id!r} is unknown")
        return found

    def list_transactions(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """All ids of this coordinator. Ids may be added and removed while the caller iterates. The
        first step raises COORDINATOR_LOAD_IN_PROGRESS while a partition is loading,
        COORDINATOR_NOT_AVAILABLE while this broker has no session with the controller.
        """
        if not self._is_in_session():
            raise KafkaError(ErrorCode.coordinator_not_available)
        for shard in self._shards.values():
            if shard.state is ShardState.loading:
                shard.check_serving()
        for shard in serving_shards(self._shards):
            for transactional_id, entry in list(shard.entries.items()):
                if entry.metadata is not None:
                    yield transactional_id, entry.metadata

    # -- timeouts and expiry -----------------------------------------------------------------------

    def _start_expiry(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._tasks.start(self._abort_timed_out_periodically())
            self._tasks.start(self._remove_expired_periodically())

    async def _abort_timed_out_periodically(self) -> None:
        while True:
            await asyncio.sleep(self.config.abort_timed_out_interval_ms / 1000)
            if self._is_in_session():
                for shard in serving_shards(self._shards):
                    for transactional_id in shard.find_timed_out(self._runtime.now_ms()):
                        self._tasks.start(self._abort_timed_out(shard, transactional_id))

    async def _abort_timed_out(self, shard: TransactionShard, transactional_id: str) -> None:
        """Fences the producer and aborts its transaction."""

        def decide(current: TransactionMetadata | None) -> TransactionMetadata:
            now_ms = self._runtime.now_ms()
            if current is None or not current.has_timed_out(now_ms):
                raise KafkaError(ErrorCode.concurrent_transactions)
            return abort_fenced(current, now_ms=now_ms, transaction_version=self._transaction_version())

        try:
            ended = await shard.transition(transactional_id, decide)
        except KafkaError as reason:
            if reason.code not in UNEVENTFUL_ERRORS:
                logger.warning("cannot abort the timed out transaction of %s: %s", transactional_id, reason)
            return
        logger.info(
            "aborting the transaction of %s, which did not end within its timeout of %d ms",
            transactional_id,
            ended.timeout_ms,
        )

    async def _remove_expired_periodically(self) -> None:
        while True:
            await asyncio.sleep(self.config.remove_expired_interval_ms / 1000)
            if self._is_in_session():
                for shard in serving_shards(self._shards):
                    await shard.remove_expired(self._runtime.now_ms(), self.config.transactional_id_expiration_ms)
