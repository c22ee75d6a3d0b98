"""Guards of the verification that a producer's transaction contains a partition (KIP-890).

Between the coordinator's answer and the append, the transaction may end: then its marker is in the
log already, and a batch after it would begin a transaction that nothing ends. So the leader begins
a verification before it asks, an end marker invalidates it, and only a valid one lets the first
batch of a transaction be appended.

Batches that wait for the coordinator at the same time may be answered in another order. A producer
that the log does not know may begin with any sequence number, so only the lowest of them is let in
first (KAFKA-14884).
"""

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class VerificationGuard:
    """Identifies the verifications of one producer since its last marker. `lowest_sequence`: lowest
    sequence number of the batches of the newest epoch that have waited. `adds_partition`: they come
    from a client of transaction version 2.
    """

    epoch: int
    lowest_sequence: int
    adds_partition: bool


class VerificationGuards:
    """The verification guards of one partition, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def get(self, producer_id: int) -> VerificationGuard | None:
        return self._guards.get(producer_id)

    def begin(
        self, producer_id: int, epoch: int, sequence: int = 0, *, adds_partition: bool = False
    ) -> VerificationGuard:
        """Begins a verification, and returns the guard to pass to `is_valid` before the append.
        `sequence`: the batch's first."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard(epoch, sequence, adds_partition)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def is_valid(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        return guard is not None and self._guards.get(producer_id) is guard

    def invalidate(self, producer_id: int) -> None:
        """Called when the producer's transaction has begun in the log, or has ended."""
        if self._guards:
            self._guards.pop(producer_id, None)

    def clear(self) -> None:
        self._guards.clear()
