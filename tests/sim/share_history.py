"""The deliveries to the members of a share group, and their acknowledgements. Each is checked when
it is recorded, against the responses that arrived before its request was sent.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from tests.sim.checks import Contents
from tests.sim.history import TopicPartition


class AcknowledgeType(IntEnum):
    """Values as requests have them."""

    accept = 1
    release = 2
    reject = 3
    renew = 4

    @property
    def is_final(self) -> bool:
        """True if the record is not delivered again afterwards."""
        return self in (AcknowledgeType.accept, AcknowledgeType.reject)


@dataclass(frozen=True, slots=True)
class Delivery:
    """`requested_s`: when its request was sent; `received_s`: when the response came."""

    member: str
    requested_s: float
    received_s: float
    count: int
    value: bytes


@dataclass
class SharedRecord:
    """`finished_s`: when the answer to a final acknowledgement came. `uncertain`: number of final
    acknowledgements without a definite answer. `released`: the delivery count of the last answered
    release, and when that answer came. `is_rejected`: it was acquired when it was rejected.
    """

    deliveries: list[Delivery] = field(default_factory=list)
    finished_s: float | None = None
    finished_by: str = ""
    uncertain: int = 0
    released: tuple[int, float] = (0, 0.0)
    is_rejected: bool = False


@dataclass
class ShareHistory:
    """`max_deliveries`: limit of the deliveries of one record. `counts`: answered acknowledgements
    by type, and deliveries."""

    record_violation: Callable[[str], None]
    max_deliveries: int
    records: dict[tuple[TopicPartition, int], SharedRecord] = field(default_factory=lambda: defaultdict(SharedRecord))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    faults_are_over: bool = False

    def record_delivery(self, tp: TopicPartition, offset: int, delivery: Delivery) -> None:
        known, what = self.records[tp, offset], f"{delivery.member} was delivered {tp} offset {offset}"
        count, (released_count, released_s) = delivery.count, known.released
        if known.finished_s is not None and delivery.requested_s >= known.finished_s:
            self.record_violation(f"delivered again: {what}, which {known.finished_by} had finished")
        if not 1 <= count <= self.max_deliveries:
            self.record_violation(f"delivery count: {what} for the {count}th time of {self.max_deliveries}")
        if delivery.requested_s >= released_s and count <= released_count:
            self.record_violation(f"delivery count: {what} with {count}; it was released with {released_count}")
        if any(other.value != delivery.value for other in known.deliveries):
            self.record_violation(f"{what} with {delivery.value!r}, where it had read {known.deliveries[0].value!r}")
        known.deliveries.append(delivery)
        self.counts["record delivered"] += 1

    def record_acknowledged(
        self, tp: TopicPartition, offset: int, member: str, kind: AcknowledgeType, requested_s: float, now_s: float
    ) -> None:
        """Records an acknowledgement that was answered without an error."""
        known, what = self.records[tp, offset], f"{member}'s {kind.name} of {tp} offset {offset} succeeded"
        mine = max((one for one in known.deliveries if one.member == member), key=lambda one: one.received_s)
        # A record that is finished or given up may lie below the start offset; then nothing is
        # checked, as in Kafka.
        is_given_up = any(one.count >= self.max_deliveries and one is not mine for one in known.deliveries)
        may_be_finished = known.finished_s is not None or known.uncertain > kind.is_final or is_given_up
        for other in () if may_be_finished else known.deliveries:
            if other.member != member and other.requested_s >= mine.received_s and other.received_s <= requested_s:
                self.record_violation(f"not acquired: {what} after the record was delivered to {other.member}")
        known.is_rejected |= kind is AcknowledgeType.reject and not may_be_finished
        if kind.is_final and known.finished_s is None:
            known.finished_s, known.finished_by = now_s, member
        elif kind is AcknowledgeType.release and not may_be_finished:
            known.released = max(known.released, (mine.count, now_s))
        self.counts[f"{kind.name} acknowledged"] += 1

    # --- after the faults

    def is_unfinished(self, tp: TopicPartition, offset: int) -> bool:
        """True if the record is neither acknowledged, as far as can be known, nor delivered as
        often as allowed.
        """
        known = self.records.get((tp, offset))
        if known is None:
            return True
        most = max((one.count for one in known.deliveries), default=0)
        return known.finished_s is None and not known.uncertain and most < self.max_deliveries

    def expected_dead_letters(self) -> Iterator[tuple[TopicPartition, int]]:
        """Records that were rejected, or delivered as often as allowed and not finished."""
        for (tp, offset), known in self.records.items():
            most = max((one.count for one in known.deliveries), default=0)
            is_given_up = known.finished_s is None and not known.uncertain and most >= self.max_deliveries
            if known.is_rejected or is_given_up:
                yield tp, offset


def share_violations(history: ShareHistory, contents: Contents) -> Iterator[str]:
    """`contents`: records of the partitions at the end."""
    for (tp, offset), known in history.records.items():
        found: Mapping[int, bytes] = contents.get(tp, {})
        for delivery in known.deliveries:
            if found.get(offset) != delivery.value:
                yield f"read and not committed: {delivery.member} was delivered {delivery.value!r} at {tp} {offset}"
