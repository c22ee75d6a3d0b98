"""What a partition remembers of its idempotent and transactional producers.

- The last five batches of each producer: a batch sent again is answered with its *original* offset; a gap in the sequence numbers, which wrap
  at 2³¹, is refused (KIP-98).
- Open transactions and those whose end marker is not replicated yet: read_committed readers stop before the first of them.
- A producer that has been silent for `producer.id.expiration.ms` is forgotten, unless its transaction is open. Those with ids from `LASTING` on are
  never: they are no producers' but say how far another cluster's log was copied (`mirroring.positions`).

`check` looks before a batch is written, `apply` notes it afterwards; replication and recovery only apply.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.wire.errors import ErrorCode, KafkaError

REMEMBERED: Final = 5
SEQUENCES: Final = 1 << 31
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
FIRST_RESERVED_PRODUCER_ID: Final = 1 << 62
"""Ids from here on are this cluster's own: no producer is given one, and none may use one. Of theirs the newest batch or marker counts, and nothing
that was before it: what a snapshot knows of an older one may lie below the log's start."""


class BatchMetadata(NamedTuple):
    """One batch of a producer. `offset_delta`: its records less one."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % SEQUENCES

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerStateEntry:
    """`timestamp` (ms): of its newest batch or marker, as Kafka's snapshot has it. `seen_ms`: wall time of its last append here, for
    expiry. `recalled`: False when only the last of its batches is known, from a snapshot."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int = NO_OFFSET
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    seen_ms: int = 0
    recalled: bool = True

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_ended", "_open", "_producers")

    def __init__(self, producers: Iterable[ProducerStateEntry] = ()) -> None:
        self._producers = {producer.producer_id: producer for producer in producers}
        starts = sorted(
            (p.current_txn_first_offset, p.producer_id)
            for p in self._producers.values()
            if p.current_txn_first_offset >= 0
        )
        self._open = dict(starts)  # first offset → producer id, rising: a transaction begins at the log's end
        self._ended: dict[
            int, int
        ] = {}  # first offset → offset of the marker, while that is not below the high watermark

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def active_producers(self) -> list[ProducerStateEntry]:
        """Every producer that has written, for DescribeProducers."""
        return [p for p in self._producers.values() if p.batches or p.current_txn_first_offset >= 0]

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated; None without any."""
        if not self._open and not self._ended:
            return None
        first = next(iter(self._open), None)
        oldest = min(self._ended, default=None)
        return oldest if first is None else first if oldest is None else min(first, oldest)

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
        """Whether a data batch may be written. Returns the batch as it was written before when it is a duplicate.

        `sequenced` is False for a coordinator's own writes, whose epoch counts and whose sequence does not. Raises KafkaError:
        INVALID_PRODUCER_EPOCH (a newer instance has written), OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if sequenced and epoch == producer.epoch:
            for sent in producer.batches:
                if sent.offset_delta == last_offset_delta and sent.first_sequence == base_sequence:
                    return sent
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id} writes with epoch {epoch}; {producer.epoch} has been seen",
            )
        if sequenced:
            expected = 0 if epoch != producer.epoch else (producer.last_sequence + 1) % SEQUENCES
            if base_sequence != expected and producer.epoch != NO_EPOCH:
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {producer_id}, epoch {epoch}: sequence {base_sequence} came, {expected} was expected",
                )
        if producer.current_txn_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id} has a transaction open and sent a batch outside of it",
            )
        return None

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Whether an end marker may be written. KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"marker for producer {producer_id} with epoch {epoch}; {producer.epoch} has been seen",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"marker from coordinator epoch {coordinator_epoch}; {producer.coordinator_epoch} has been seen",
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
        """Notes a data batch that is in the log."""
        producer = self._of(producer_id, epoch, now_ms)
        last_sequence = NO_SEQUENCE if base_sequence < 0 else (base_sequence + delta) % SEQUENCES
        producer.batches.append(BatchMetadata(last_sequence, base_offset + delta, delta, timestamp))
        producer.last_timestamp = timestamp
        if producer_id >= FIRST_RESERVED_PRODUCER_ID:
            producer.coordinator_epoch = -1
        if transactional and producer.current_txn_first_offset < 0:
            producer.current_txn_first_offset = base_offset
            self._open[base_offset] = producer_id

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
        """Notes an end marker at `offset`. Returns the entry for the transaction index when a transaction was aborted."""
        producer = self._of(producer_id, epoch, now_ms)
        start, producer.current_txn_first_offset = producer.current_txn_first_offset, NO_OFFSET
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        if producer_id >= FIRST_RESERVED_PRODUCER_ID:
            producer.batches.clear()
        if start < 0:
            return None
        self._open.pop(start, None)
        self._ended[start] = offset
        return AbortedTransaction(producer_id, start, offset, next(iter(self._open), offset + 1)) if aborted else None

    def _of(self, producer_id: int, epoch: int, now_ms: int) -> ProducerStateEntry:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerStateEntry(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
            producer.recalled = True
        producer.seen_ms = now_ms
        return producer

    def remove_replicated_transactions(self, high_watermark: int) -> None:
        """Transactions whose marker lies below the high watermark no longer hold readers back."""
        if self._ended:
            self._ended = {first: marker for first, marker in self._ended.items() if marker >= high_watermark}

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers silent for `expiration_ms`; returns how many."""
        silent = [
            p.producer_id
            for p in self._producers.values()
            if p.current_txn_first_offset < 0
            and now_ms - p.seen_ms >= expiration_ms
            and p.producer_id < FIRST_RESERVED_PRODUCER_ID
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def clear(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
