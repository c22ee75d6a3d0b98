"""State of a partition's idempotent and transactional producers (Kafka's ProducerStateManager).

- The last five batches of each producer. A batch that is sent again is answered with its *original*
  offset. A gap in the sequence numbers, which wrap at 2³¹, is refused (KIP-98).
- Open transactions, and those whose end marker is not replicated yet: read_committed readers stop
  before the first.
- A producer that has been silent for `producer.id.expiration.ms` is removed, unless its transaction
  is open. Reserved producer ids never expire: each stores how far another cluster's log was copied
  (`mirroring.source_positions`).

`check_batch` decides before a batch is written, `apply_batch` records it afterwards. Replication
and recovery only apply.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla_broker.log.indexes import AbortedTransaction
from ottla_broker.log.transaction_verification import VerificationGuard, VerificationGuards
from ottla_broker.wire.errors import ErrorCode, KafkaError

BATCHES_TO_RETAIN: Final = 5
SEQUENCE_COUNT: Final = 1 << 31
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
EPOCH_BUMP_VERSION: Final = 2
"""The first transaction version in which each end of a transaction raises the producer's epoch
(KIP-890).
"""
FIRST_RESERVED_PRODUCER_ID: Final = 1 << 62
"""Ids from here on are reserved for this cluster: no producer gets one, and no client may use one.
Of a reserved id only the newest batch or marker counts: what a snapshot says of an older one may
lie below the log's start."""


class BatchMetadata(NamedTuple):
    """One batch of a producer. `offset_delta`: its number of records less one."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % SEQUENCE_COUNT

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerStateEntry:
    """One producer. `last_timestamp` (ms): that of its newest batch or marker, as Kafka's snapshots
    have it.

    `last_append_ms`: wall time of its last append here, for expiry. `has_all_batches`: False when
    only the last of its batches is known, from a snapshot.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int = NO_OFFSET
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_TO_RETAIN))
    last_append_ms: int = 0
    has_all_batches: bool = True

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_ongoing_txns", "_producers", "_unreplicated_txns", "verifications")

    def __init__(self, producers: Iterable[ProducerStateEntry] = ()) -> None:
        self._producers = {producer.producer_id: producer for producer in producers}
        in_txn = [p for p in self._producers.values() if p.current_txn_first_offset >= 0]
        # First offset → producer id, rising: a transaction begins at the log's end.
        self._ongoing_txns = dict(sorted((p.current_txn_first_offset, p.producer_id) for p in in_txn))
        # First offset → offset of the marker, while that is not below the high watermark.
        self._unreplicated_txns: dict[int, int] = {}
        self.verifications = VerificationGuards()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def active_producers(self) -> list[ProducerStateEntry]:
        """The producers for DescribeProducers, without reserved ids that have no batch."""
        return [p for p in self._producers.values() if p.batches or p.producer_id < FIRST_RESERVED_PRODUCER_ID]

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated;
        None without any."""
        if not self._ongoing_txns and not self._unreplicated_txns:
            return None
        ongoing = next(iter(self._ongoing_txns), None)
        unreplicated = min(self._unreplicated_txns, default=None)
        if ongoing is None or unreplicated is None:
            return unreplicated if ongoing is None else ongoing
        return min(ongoing, unreplicated)

    def check_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        *,
        transactional: bool,
        sequenced: bool,
    ) -> BatchMetadata | None:
        """Returns None if a data batch may be written; the batch as it was written before if it is
        a duplicate.

        `sequenced` is False for a coordinator's own writes, of which the epoch is checked and the
        sequence is not. Raises KafkaError: INVALID_PRODUCER_EPOCH (a newer instance has written),
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            if transactional and sequenced:
                self._check_first_sequence(producer_id, base_sequence)
            return None
        if sequenced and epoch == producer.epoch:
            for sent in producer.batches:
                if sent.offset_delta == last_offset_delta and sent.first_sequence == base_sequence:
                    return sent
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id} writes with epoch {epoch}; its current epoch is {producer.epoch}",
            )
        if sequenced:
            if transactional and not producer.batches:
                self._check_first_sequence(producer_id, base_sequence)
            expected = 0 if epoch != producer.epoch else (producer.last_sequence + 1) % SEQUENCE_COUNT
            if base_sequence != expected and producer.epoch != NO_EPOCH:
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {producer_id}, epoch {epoch}: sequence {base_sequence} instead of {expected}",
                )
        if producer.current_txn_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id} has an open transaction and sent a batch outside of it",
            )
        return None

    def _check_first_sequence(self, producer_id: int, sequence: int) -> None:
        """Validates the sequence of a transactional batch of a producer without batches here.
        Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER for a sequence above 0 with transaction
        version 2, and for a batch that overtook another one verified at the same time.

        Kafka compares with the lowest sequence also where it knows the producer. There a repeated
        batch of an earlier transaction, which arrives late, would make the next transaction fail.
        """
        if (guard := self.verifications.get(producer_id)) is None:
            return
        expected = 0 if guard.adds_partition else guard.lowest_sequence
        if sequence > expected:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id} begins with sequence {sequence} instead of {expected}",
            )

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """True if a transaction of the producer with this epoch is open in this log."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.current_txn_first_offset >= 0 and producer.epoch == epoch

    def check_verified(self, producer_id: int, epoch: int, guard: VerificationGuard | None) -> None:
        """Returns if a transactional batch belongs to a transaction that is open here, or that the
        coordinator has confirmed. Raises KafkaError: INVALID_PRODUCER_EPOCH, before
        INVALID_TXN_STATE (KAFKA-19690).
        """
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id} writes with epoch {epoch}; its current epoch is {producer.epoch}",
            )
        if self.has_open_transaction(producer_id, epoch) or self.verifications.is_valid(producer_id, guard):
            return
        raise KafkaError(ErrorCode.invalid_txn_state, f"the transaction of producer {producer_id} is not open here")

    def is_end_written(self, producer_id: int, epoch: int, transaction_version: int) -> bool:
        """True if an end marker is in the log already, and its coordinator sends it again
        (KAFKA-19999). Always False below transaction version 2, in which each end of a transaction
        raises the epoch. Raises KafkaError INVALID_PRODUCER_EPOCH if the open
        transaction is later than the marker's (KIP-1228).
        """
        producer = self._producers.get(producer_id)
        if transaction_version < EPOCH_BUMP_VERSION or producer is None or epoch > producer.epoch:
            return False
        if producer.current_txn_first_offset < 0:
            return True
        raise KafkaError(
            ErrorCode.invalid_producer_epoch,
            f"marker for producer {producer_id} with epoch {epoch}; its open transaction has epoch {producer.epoch}",
        )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Returns if an end marker may be written. Raises KafkaError: INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"marker for producer {producer_id} with epoch {epoch}; its current epoch is {producer.epoch}",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"marker from coordinator epoch {coordinator_epoch}; the newest is {producer.coordinator_epoch}",
            )

    def apply_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        delta: int,
        timestamp: int,
        transactional: bool,
        now_ms: int,
    ) -> None:
        """Records a data batch that is in the log."""
        producer = self._entry(producer_id, epoch, now_ms)
        last_sequence = NO_SEQUENCE if base_sequence < 0 else (base_sequence + delta) % SEQUENCE_COUNT
        producer.batches.append(BatchMetadata(last_sequence, base_offset + delta, delta, timestamp))
        producer.last_timestamp = timestamp
        if producer_id >= FIRST_RESERVED_PRODUCER_ID:
            producer.coordinator_epoch = -1
        if transactional and producer.current_txn_first_offset < 0:
            producer.current_txn_first_offset = base_offset
            self._ongoing_txns[base_offset] = producer_id
            self.verifications.invalidate(producer_id)

    def apply_marker(
        self,
        producer_id: int,
        epoch: int,
        offset: int,
        timestamp: int,
        coordinator_epoch: int,
        *,
        aborted: bool,
        now_ms: int,
    ) -> AbortedTransaction | None:
        """Records an end marker at `offset`. Returns the transaction index's entry when it aborts a
        transaction, else None."""
        producer = self._entry(producer_id, epoch, now_ms)
        self.verifications.invalidate(producer_id)
        first, producer.current_txn_first_offset = producer.current_txn_first_offset, NO_OFFSET
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        if producer_id >= FIRST_RESERVED_PRODUCER_ID:
            producer.batches.clear()
        if first < 0:
            return None
        self._ongoing_txns.pop(first, None)
        self._unreplicated_txns[first] = offset
        if not aborted:
            return None
        return AbortedTransaction(producer_id, first, offset, next(iter(self._ongoing_txns), offset + 1))

    def _entry(self, producer_id: int, epoch: int, now_ms: int) -> ProducerStateEntry:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerStateEntry(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
            producer.has_all_batches = True
        producer.last_append_ms = now_ms
        return producer

    def remove_replicated_transactions(self, high_watermark: int) -> None:
        """Removes transactions whose marker is below the high watermark, so that read_committed
        consumers may read beyond them."""
        if self._unreplicated_txns:
            self._unreplicated_txns = {
                first: marker for first, marker in self._unreplicated_txns.items() if marker >= high_watermark
            }

    def keep_unreplicated_transactions(self, before: "ProducerStates", end: int) -> None:
        """Takes over from `before` the unreplicated transactions whose marker is below `end`.
        Snapshots do not have them.
        """
        self._unreplicated_txns |= {
            first: marker for first, marker in before._unreplicated_txns.items() if marker < end
        }

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Removes producers that have been silent for `expiration_ms`; returns how many."""
        expired = [
            p.producer_id
            for p in self._producers.values()
            if p.current_txn_first_offset < 0
            and now_ms - p.last_append_ms >= expiration_ms
            and p.producer_id < FIRST_RESERVED_PRODUCER_ID
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing_txns.clear()
        self._unreplicated_txns.clear()
        self.verifications.clear()
