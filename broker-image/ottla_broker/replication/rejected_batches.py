"""Batches of idempotent producers that were rejected with a temporary error, so that the batches
behind them get the same error.

A producer sends up to five batches of a partition before it has the first response. When the first
is rejected because the disk is full, the ISR too small or another broker the leader, those behind
it would be out of order: a client that gets OUT_OF_ORDER_SEQUENCE_NUMBER begins a new producer
epoch, in which a batch of unknown fate cannot be told from a new one and may be written twice. But
nothing is out of order: the gap closes when the rejected batch is sent again.
`tests/unit/replication/test_rejected_batches.py` and the simulation check this."""

from contextlib import suppress
from typing import Final

from ottla_broker.wire.batch import HEADER_SIZE, Buffer, parse_batch_header
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_BEHIND: Final = 4  # a producer has at most five batches in flight
MAX_PRODUCERS: Final = 1000  # the one that was rejected first makes room
TEMPORARY_ERRORS: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
    }
)
HALF_OF_SEQUENCES: Final = 1 << 30

Producer = tuple[int, int]  # id, epoch


class RejectedBatches:
    """The rejected batches of one partition in one leader epoch; as a truth value, whether there
    are any. `records`: whole batches, of which the first header is read."""

    __slots__ = ("_rejected",)

    def __init__(self) -> None:
        self._rejected: dict[Producer, tuple[int, int, KafkaError]] = {}  # sequence, how many more behind it, error

    def __bool__(self) -> bool:
        return bool(self._rejected)

    def check(self, records: Buffer) -> None:
        """Raises the error of a rejected batch that these records follow."""
        if (found := _producer_and_sequence(records)) is None:
            return
        producer, sequence = found
        if (known := self._rejected.get(producer)) is None:
            return
        first, behind, reason = known
        if not 0 < (sequence - first) % (2 * HALF_OF_SEQUENCES) < HALF_OF_SEQUENCES:
            return  # the rejected batch again, or one before it
        if behind == 0:
            del self._rejected[producer]  # the producer has given up the rejected batch: there is a gap
            return
        self._rejected[producer] = first, behind - 1, reason
        raise KafkaError(reason.code, f"behind sequence {first} of producer {producer[0]}: {reason.message}")

    def record_rejection(self, records: Buffer, reason: KafkaError) -> None:
        """Remembers that the records were rejected, if the error is temporary."""
        if reason.code not in TEMPORARY_ERRORS or (found := _producer_and_sequence(records)) is None:
            return
        producer, sequence = found
        self._rejected.pop(producer, None)
        if len(self._rejected) >= MAX_PRODUCERS:
            del self._rejected[next(iter(self._rejected))]
        self._rejected[producer] = sequence, MAX_BEHIND, reason

    def record_append(self, records: Buffer) -> None:
        """Forgets the producer's rejected batch, because these records are in the log."""
        if (found := _producer_and_sequence(records)) is not None:
            self._rejected.pop(found[0], None)

    def reject(self, records: Buffer, reason: KafkaError) -> KafkaError:
        """Remembers that the records are rejected and returns the error to send. Raises the error
        of a rejected batch that they follow."""
        self.check(records)
        self.record_rejection(records, reason)
        return reason

    def redirect(self, records: Buffer) -> None:
        """Rejects the records, so that the producer sends them and the batches in flight behind
        them to the new leader.
        """
        with suppress(KafkaError):  # they follow a rejected batch, and so are rejected already
            self.reject(records, KafkaError(ErrorCode.not_leader_or_follower))

    def can_forward(self, records: Buffer) -> bool:
        """False if a rejected batch before them was not sent again: the new leader would find a
        gap. Otherwise forgets the producer's rejected batch, because the new leader gets these
        records."""
        try:
            self.check(records)
        except KafkaError:
            return False
        self.record_append(records)
        return True


def _producer_and_sequence(records: Buffer) -> tuple[Producer, int] | None:
    """The producer and base sequence of the first batch; None if the producer is not idempotent."""
    if len(records) < HEADER_SIZE:
        return None
    header = parse_batch_header(records)
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return (header.producer_id, header.producer_epoch), header.base_sequence
