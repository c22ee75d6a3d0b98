"""Guards of the verification that a producer's transaction contains a partition (KIP-890).

Between the coordinator's answer and the append, the transaction may end: then its marker is in the
log already, and a batch after it would begin a transaction that nothing ends. So the leader begins
a verification before it asks, an end marker invalidates it, and only a valid one lets the first
batch of a transaction be appended.
"""

VerificationGuard = object
"""Identifies the verifications of one producer since its last marker."""


class VerificationGuards:
    """The verification guards of one partition, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def begin(self, producer_id: int) -> VerificationGuard:
        """The guard to pass to `is_valid` before the append."""
        return self._guards.setdefault(producer_id, object())

    def is_valid(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        return guard is not None and self._guards.get(producer_id) is guard

    def invalidate(self, producer_id: int) -> None:
        """The transaction has begun in the log, or ended."""
        if self._guards:
            self._guards.pop(producer_id, None)

    def clear(self) -> None:
        self._guards.clear()
