"""The state machine of one transactional id (KIP-98, KIP-360, KIP-890). No I/O.

Each function takes the replicated state and returns the next one, which the coordinator writes and
then applies. If it raises a KafkaError, the client gets the error and the state does not change.
The coordinator allows one transition of an id in flight at a time. A second one in that time fails
with its own error, or else with CONCURRENT_TRANSACTIONS.

- Transaction version 1: a producer keeps its epoch from transaction to transaction. A new instance,
  or the coordinator that ends a transaction at its timeout, raises it.
- Transaction version 2: each end of a transaction raises the epoch, so that a late batch or marker
  cannot become part of the next transaction.
- A producer never gets the largest epoch, so that the coordinator can always fence it with a larger
  one. When epochs are used up, the id gets a new producer id with epoch 0.
- A transaction in PrepareCommit or PrepareAbort is decided: its outcome no longer changes, and a
  new coordinator of the id completes it.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ottla_broker.log.producer_state import EPOCH_BUMP_VERSION
from ottla_broker.wire.batch import NO_PRODUCER_ID
from ottla_broker.wire.errors import ErrorCode, KafkaError

NO_PRODUCER_EPOCH: Final = -1
MAX_EPOCH: Final = (1 << 15) - 1
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1
NO_TIME: Final = -1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""Timeout of transactions that another system decides (KIP-939), as Kafka stores it."""


class TransactionState(IntEnum):
    """Codes are those of Kafka's records."""

    empty = 0
    ongoing = 1
    prepare_commit = 2
    prepare_abort = 3
    complete_commit = 4
    complete_abort = 5
    dead = 6
    prepare_epoch_fence = 7

    @property
    def title(self) -> str:
        """Kafka's name, such as PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EXPIRABLE_STATES: Final = frozenset(
    {TransactionState.empty, TransactionState.complete_commit, TransactionState.complete_abort}
)
"""Those in which no transaction is open; an id may then begin one, or expire."""
DECIDED_STATES: Final = frozenset({TransactionState.prepare_commit, TransactionState.prepare_abort})


class TxnPartition(NamedTuple):
    topic: str
    partition: int


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class TransactionMetadata(msgspec.Struct, frozen=True):
    """Times in ms of the wall clock. `last_producer_epoch`: the one before `producer_epoch`, by
    which a repeated InitProducerId is recognised; it is not in the log. `previous_producer_id`: the
    id before the last InitProducerId or completed transaction, in most cases the same one.
    `next_producer_id`: of a decided transaction, the id that replaces `producer_id` at its
    completion, because the epochs are used up. `client_transaction_version`: the protocol of the
    newest transaction."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.empty
    partitions: frozenset[TxnPartition] = frozenset()
    start_ms: int = NO_TIME
    last_update_ms: int = NO_TIME
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def raises_epochs(self) -> bool:
        """True if the end of the newest transaction raises the producer's epoch (transaction
        version 2)."""
        return self.client_transaction_version >= EPOCH_BUMP_VERSION

    @property
    def commits(self) -> bool:
        """True if a decided transaction commits, False if it aborts."""
        return self.state is TransactionState.prepare_commit

    def has_timed_out(self, now_ms: int) -> bool:
        if self.state is not TransactionState.ongoing or self.timeout_ms == NO_TIMEOUT_MS:
            return False
        return self.start_ms + self.timeout_ms < now_ms

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in EXPIRABLE_STATES and self.last_update_ms + expiration_ms <= now_ms


# --- InitProducerId


def needs_new_producer_id(current: TransactionMetadata | None, expected: ProducerIdAndEpoch | None) -> bool:
    """True if `initialize_producer` needs an id that no producer ever had."""
    if current is None:
        return True
    return (
        current.state in EXPIRABLE_STATES
        and current.is_epoch_exhausted
        and (expected is None or expected.epoch == current.producer_epoch)
    )


def initialize_producer(
    current: TransactionMetadata | None,
    expected: ProducerIdAndEpoch | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int,
    transaction_version: int,
) -> TransactionMetadata:
    """The state for a new producer or, with `expected`, for one that continues after an error
    (KIP-360).

    If the result is in PrepareAbort, it ends the former instance's transaction: the caller returns
    CONCURRENT_TRANSACTIONS to the producer, which retries. Raises PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS. `new_producer_id`: used if `needs_new_producer_id`.
    `transaction_version`: the finalized one.
    """
    if current is None:
        return TransactionMetadata(new_producer_id, 0, timeout_ms, last_update_ms=now_ms)
    if expected is not None and not _is_known_producer(current, expected):
        raise KafkaError(
            ErrorCode.producer_fenced,
            f"producer {expected.producer_id} is not the current producer {current.producer_id}",
        )
    if current.state in DECIDED_STATES:
        raise KafkaError(ErrorCode.concurrent_transactions, "the last transaction is being completed")
    if current.state is TransactionState.ongoing:
        return abort_fenced(current, now_ms=now_ms, transaction_version=transaction_version)
    if needs_new_producer_id(current, expected):
        return replace(
            _emptied(current, timeout_ms, now_ms),
            producer_id=new_producer_id,
            producer_epoch=0,
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else current.producer_epoch,
            previous_producer_id=current.producer_id,
        )
    epoch, last_epoch = _next_epochs(current, expected)
    return replace(
        _emptied(current, timeout_ms, now_ms),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        previous_producer_id=current.producer_id,
    )


def _is_known_producer(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    return expected.producer_id == current.producer_id or (
        # A retry: the answer with the new producer id was lost.
        expected.producer_id == current.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
    )


def _next_epochs(current: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
    """The epoch to give out, and the one before it."""
    if expected is None:
        return current.producer_epoch + 1, NO_PRODUCER_EPOCH
    if expected.epoch == current.producer_epoch:
        return current.producer_epoch + 1, current.producer_epoch
    if expected.epoch == current.last_producer_epoch:
        return current.producer_epoch, current.last_producer_epoch  # a retry, whose answer was lost
    raise KafkaError(
        ErrorCode.producer_fenced, f"epoch {expected.epoch} is not the current epoch {current.producer_epoch}"
    )


def _emptied(current: TransactionMetadata, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    return replace(
        current,
        timeout_ms=timeout_ms,
        state=TransactionState.empty,
        partitions=frozenset(),
        start_ms=NO_TIME,
        last_update_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
    )


# --- AddPartitionsToTxn, AddOffsetsToTxn


def add_partitions(
    current: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    added: Iterable[TxnPartition],
    *,
    now_ms: int,
    client_version: int,
) -> TransactionMetadata:
    """The transaction with more partitions; `current` itself if it has them all. Raises
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS."""
    current = _check_producer(current, producer)
    if current.state in DECIDED_STATES:
        raise KafkaError(ErrorCode.concurrent_transactions, "the last transaction is being completed")
    partitions = current.partitions.union(added)
    is_ongoing = current.state is TransactionState.ongoing
    if is_ongoing and len(partitions) == len(current.partitions):
        return current
    return replace(
        current,
        state=TransactionState.ongoing,
        partitions=partitions,
        start_ms=current.start_ms if is_ongoing else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=client_version,
    )


def find_missing_partitions(
    current: TransactionMetadata | None, producer: ProducerIdAndEpoch, wanted: Iterable[TxnPartition]
) -> frozenset[TxnPartition]:
    """Those of `wanted` that are not in the producer's transaction. Raises what
    `add_partitions` raises."""
    current = _check_producer(current, producer)
    if current.state in DECIDED_STATES:
        raise KafkaError(ErrorCode.concurrent_transactions, "the last transaction is being completed")
    return frozenset(wanted) - current.partitions


def _check_producer(current: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> TransactionMetadata:
    if current is None or current.producer_id != producer.producer_id:
        raise KafkaError(
            ErrorCode.invalid_producer_id_mapping,
            f"producer id {producer.producer_id} is not that of the transactional id",
        )
    if current.producer_epoch != producer.epoch:
        raise KafkaError(
            ErrorCode.producer_fenced, f"epoch {producer.epoch} is not the current epoch {current.producer_epoch}"
        )
    return current


# --- EndTxn


def is_end_retried(current: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """True if the producer (transaction version 2) repeats an EndTxn request that has raised its
    epoch or given it a new id: the request has the previous epoch, or the previous id with the last
    epoch of that id."""
    if not current.raises_epochs:
        return False
    if current.producer_id == producer.producer_id and current.producer_epoch == producer.epoch + 1:
        return True
    return (
        current.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_CLIENT_EPOCH
        and current.producer_epoch == 0
    )


def end_transaction(
    current: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool,
    client_version: int,
    new_producer_id: int,
    now_ms: int,
) -> TransactionMetadata:
    """The decided transaction; `current` itself if the request is a repetition and the transaction
    is complete. With transaction version 2 an abort also ends a transaction that has not begun.
    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE;
    CONCURRENT_TRANSACTIONS while the transaction is being completed. `new_producer_id`: used when
    epochs are used up (transaction version 2)."""
    if current is None:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping, "the transactional id is unknown")
    raises_epoch = client_version >= EPOCH_BUMP_VERSION
    is_retry = raises_epoch and is_end_retried(current, producer)
    if not is_retry:
        current = _check_producer(current, producer)
        if raises_epoch and current.state in DECIDED_STATES:
            raise KafkaError(ErrorCode.producer_fenced, "the producer has ended this transaction, and has a new epoch")
    # Transaction version 1 keeps the epoch, so the same request again is a retry. With transaction
    # version 2 a request with the current epoch ends the next transaction.
    is_repeated = is_retry or not raises_epoch
    decided, completed = (
        (TransactionState.prepare_commit, TransactionState.complete_commit)
        if commit
        else (TransactionState.prepare_abort, TransactionState.complete_abort)
    )
    if current.state is TransactionState.ongoing and not is_retry:
        return _decide(current, decided, client_version, new_producer_id, now_ms)
    if is_repeated and current.state is completed:
        return current
    if is_repeated and current.state is decided:
        raise KafkaError(ErrorCode.concurrent_transactions, "the transaction is being completed")
    may_abort_nothing = current.state in EXPIRABLE_STATES and not is_retry and raises_epoch
    if not commit and may_abort_nothing and (current.raises_epochs or current.state is TransactionState.empty):
        # The producer does not know whether a batch of it began the transaction.
        return _decide(replace(current, start_ms=now_ms), decided, client_version, new_producer_id, now_ms)
    raise KafkaError(
        ErrorCode.invalid_txn_state,
        f"a transaction in state {current.state.title} cannot be {'committed' if commit else 'aborted'}",
    )


def _decide(
    current: TransactionMetadata, decided: TransactionState, version: int, new_producer_id: int, now_ms: int
) -> TransactionMetadata:
    decision = replace(current, state=decided, last_update_ms=now_ms, client_transaction_version=version)
    if version < EPOCH_BUMP_VERSION:
        return decision
    return replace(
        decision,
        producer_epoch=current.producer_epoch + 1,
        last_producer_epoch=current.producer_epoch,
        next_producer_id=new_producer_id if current.is_epoch_exhausted else NO_PRODUCER_ID,
    )


def abort_fenced(current: TransactionMetadata, *, now_ms: int, transaction_version: int) -> TransactionMetadata:
    """The open transaction, aborted by the coordinator with an epoch that its producer never gets.
    A second attempt, after one that could not be written, has the same epoch.
    """
    assert current.state is TransactionState.ongoing
    return replace(
        current,
        state=TransactionState.prepare_abort,
        producer_epoch=min(current.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=(
            current.producer_epoch if transaction_version >= EPOCH_BUMP_VERSION else NO_PRODUCER_EPOCH
        ),
        last_update_ms=now_ms,
        client_transaction_version=transaction_version,
    )


def complete(current: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """The transaction, once every partition has its marker."""
    assert current.state in DECIDED_STATES
    completed = replace(
        current,
        state=TransactionState.complete_commit if current.commits else TransactionState.complete_abort,
        partitions=frozenset(),
        last_update_ms=now_ms,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
    if current.raises_epochs and current.next_producer_id != NO_PRODUCER_ID:
        return replace(completed, producer_id=current.next_producer_id, producer_epoch=0)
    return completed


def producer_after_end(current: TransactionMetadata) -> ProducerIdAndEpoch:
    """The producer id and epoch of the next transaction (transaction version 2)."""
    if current.state in DECIDED_STATES:
        return complete(current, now_ms=current.last_update_ms).producer
    return current.producer
