"""Moves of partitions to other replicas, and what they cost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """A partition now. `replicas`: brokers, the preferred leader first. `leader`: −1 if there is
    none. `bytes`: size of one replica."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """A partition gets other replicas; or the same in another order, which copies nothing and
    changes the preferred leader."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    leader: int
    bytes: int

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(it for it in self.after if it not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(it for it in self.before if it not in self.after)


@dataclass(frozen=True, slots=True)
class MoveCost:
    """`partitions`: number of partitions that change. `replicas`: number of replicas to copy, with
    `bytes` in total. `busiest_bytes`: the most that one broker receives or sends, because a
    throttle limits each broker and direction separately.
    """

    partitions: int
    replicas: int
    bytes: int
    busiest_bytes: int

    def duration_s(self, throttle: float) -> float:
        """The least time that it takes. `throttle`: bytes per second and broker."""
        return self.busiest_bytes / throttle


def planned_move(partition: PartitionReplicas, after: Sequence[int]) -> Move | None:
    """None if the replicas stay as they are."""
    if tuple(after) == partition.replicas:
        return None
    return Move(
        partition.topic, partition.partition, partition.replicas, tuple(after), partition.leader, partition.bytes
    )


def apply_moves(partitions: Iterable[PartitionReplicas], moves: Iterable[Move]) -> list[PartitionReplicas]:
    """The partitions after the moves."""
    after = {(it.topic, it.partition): it.after for it in moves}
    return [replace(it, replicas=after.get((it.topic, it.partition), it.replicas)) for it in partitions]


def moves_between(before: Iterable[PartitionReplicas], after: Iterable[PartitionReplicas]) -> tuple[Move, ...]:
    """The moves from one assignment to another; both have the same partitions in the same order."""
    found = (planned_move(old, new.replicas) for old, new in zip(before, after, strict=True))
    return tuple(it for it in found if it is not None)


def estimate_cost(moves: Iterable[Move]) -> MoveCost:
    partitions = replicas = 0
    coming: Counter[int] = Counter()
    going: Counter[int] = Counter()
    for move in moves:
        partitions += 1
        replicas += len(move.adding)
        for broker in move.adding:
            coming[broker] += move.bytes
            going[move.leader] += move.bytes
    busiest = max([0, *coming.values(), *going.values()])
    return MoveCost(partitions, replicas, coming.total(), busiest)
