"""The requests of a run's transactional clients with their outcomes, and what readers of committed
records read: the input of `transaction_checks`.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.sim.history import TopicPartition


class TransactionOutcome(Enum):
    """`open`: its commit was never requested, or every request for it was refused. `unknown`: a
    request to commit has no definite answer."""

    open = auto()
    unknown = auto()
    committed = auto()


@dataclass(eq=False)
class Transaction:
    """One transaction of one instance of a producer. `values`: values of the records that it has
    sent."""

    producer: str
    instance: int
    number: int
    values: dict[bytes, TopicPartition] = field(default_factory=dict)
    outcome: TransactionOutcome = TransactionOutcome.open

    def __str__(self) -> str:
        return f"{self.producer}#{self.instance}/{self.number}"


@dataclass(frozen=True, slots=True)
class InputPosition:
    """The position of one record that a worker has read."""

    topic_partition: TopicPartition
    offset: int


@dataclass
class TransactionHistory:
    """`first_epochs`: by transactional id and instance, the epoch that its InitProducerId returned.
    `outputs`: value of a worker's output → the record it was made of. `visible`: by reader, the
    records that it read. `positions`: by reader, the next offset of each partition.
    `commit_counts`: acknowledged commits by producer.
    """

    record_violation: Callable[[str], None]
    transactions: list[Transaction] = field(default_factory=list)
    first_epochs: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    outputs: dict[bytes, InputPosition] = field(default_factory=dict)
    visible: dict[str, dict[TopicPartition, dict[int, bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    positions: dict[str, dict[TopicPartition, int]] = field(default_factory=lambda: defaultdict(dict))
    commit_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    # by leader epoch, the largest observed
    last_stable_offsets: dict[TopicPartition, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    group_offsets: dict[TopicPartition, int] = field(default_factory=dict)  # the largest that a worker committed
    faults_are_over: bool = False

    def begin(self, producer: str, instance: int) -> Transaction:
        transaction = Transaction(producer, instance, len(self.transactions))
        self.transactions.append(transaction)
        return transaction

    def record_init(self, producer: str, instance: int, epoch: int) -> None:
        """Records the epoch that the coordinator gave to an instance. It tells which instance is
        newer, because their requests overlap.
        """
        epochs = self.first_epochs[producer]
        if epoch in epochs.values():
            self.record_violation(f"zombie: two instances of {producer} were given epoch {epoch}")
        epochs[instance] = epoch

    def is_superseded(self, producer: str, epoch: int) -> bool:
        return max(self.first_epochs[producer].values(), default=-1) > epoch

    def record_visible(self, reader: str, tp: TopicPartition, offset: int, value: bytes) -> None:
        before = self.visible[reader][tp].setdefault(offset, value)
        if before != value:
            self.record_violation(f"{reader} read {value!r} at {tp} offset {offset}, where it had read {before!r}")

    def last_stable_offset(self, tp: TopicPartition, epoch: int) -> int:
        """The largest that was observed from leaders of this epoch or an older one."""
        return max((offset for known, offset in self.last_stable_offsets[tp].items() if known <= epoch), default=0)

    def record_last_stable_offset(self, tp: TopicPartition, epoch: int, offset: int, known_at_request: int) -> None:
        """`known_at_request`: value of `last_stable_offset` when the request was sent."""
        if offset < known_at_request:
            self.record_violation(
                f"the last stable offset of {tp} went back from {known_at_request} to {offset} in epoch {epoch}"
            )
        observed = self.last_stable_offsets[tp]
        observed[epoch] = max(offset, observed.get(epoch, 0))
