"""Replicas on brokers while a plan is being made: who holds what, counted, with the rules that no step may break.

Rules: a partition never has two replicas on one broker; a step never brings the replicas of a partition into fewer racks than they are in.
"""

from collections.abc import Iterator, Sequence

from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.plan.moves import PartitionReplicas


class ReplicaLayout:
    """`replicas`: of each partition, by its index in `partitions`; changed in place by `put`, `add` and `drop`. `open`: brokers that may be given
    more, with their racks; other brokers keep what they have unless it is taken from them."""

    def __init__(self, partitions: Sequence[PartitionReplicas], places: Sequence[UsableBroker]) -> None:
        self.partitions = partitions
        self.targets = {it.broker: it.rack for it in sorted(places, key=lambda it: it.broker)}
        self.replicas = [list(it.replicas) for it in partitions]
        self.count = dict.fromkeys(self.targets, 0)
        self._held: dict[int, dict[str, dict[int, None]]] = {it: {} for it in self.targets}
        # The small ones come first wherever there is a choice: they are there soonest.
        for index in sorted(range(len(partitions)), key=lambda it: partitions[it].bytes):
            for broker in self.replicas[index]:
                self._note(index, broker)

    def add(self, index: int, broker: int, at: int | None = None) -> None:
        """`at`: its place in the order of replicas; the last when not given."""
        assert broker not in self.replicas[index]
        self.replicas[index].insert(len(self.replicas[index]) if at is None else at, broker)
        self._note(index, broker)

    def remove(self, index: int, broker: int) -> None:
        self.replicas[index].remove(broker)
        if broker in self.count:
            self.count[broker] -= 1
            del self._held[broker][self.partitions[index].topic][index]

    def replace(self, index: int, old: int, new: int) -> None:
        """`new` takes the place of `old` in the order too, so that a preferred leader hands that on."""
        at = self.replicas[index].index(old)
        self.remove(index, old)
        self.add(index, new, at)

    def racks(self, index: int, *, without: int | None = None) -> set[str]:
        return {self.rack(it) for it in self.replicas[index] if it != without}

    def rack(self, broker: int) -> str:
        """Brokers whose rack is not known are each their own."""
        return self.targets.get(broker) or f"broker {broker}"

    def keeps_racks(self, index: int, old: int, new: int) -> bool:
        """Whether the replicas are in no fewer racks after `new` took the place of `old`."""
        rest = self.racks(index, without=old)
        return self.rack(new) not in rest or self.rack(old) in rest

    def choose_broker(self, index: int) -> int | None:
        """The broker to be given one more replica of a partition: in a rack that has none, then with the least to hold; None when all have one."""
        racks = self.racks(index)
        topic = self.partitions[index].topic
        return min(
            (it for it in self.targets if it not in self.replicas[index]),
            key=lambda it: (self.rack(it) in racks, self.count[it], self.count_of_topic(it, topic), it),
            default=None,
        )

    def count_of_topic(self, broker: int, topic: str) -> int:
        """How many replicas of a topic a broker holds."""
        return len(self._held[broker].get(topic, ()))

    def movable_partitions(self, broker: int, other: int) -> Iterator[int]:
        """Partitions on `broker`, first those of the topic of which it has most more than `other`."""
        mine = self._held[broker]

        def excess(topic: str) -> int:
            return len(mine[topic]) - self.count_of_topic(other, topic)

        if mine:  # mostly the first will do
            yield from mine[max(mine, key=excess)]
        for topic in sorted(mine, key=excess, reverse=True):
            yield from mine[topic]

    def _note(self, index: int, broker: int) -> None:
        if broker in self.count:
            self.count[broker] += 1
            self._held[broker].setdefault(self.partitions[index].topic, {})[index] = None
