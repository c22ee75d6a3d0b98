"""Replicas on brokers while a plan is made."""

from collections.abc import Callable, Iterator, Sequence

from ottla_broker.metadata.placement import UsableBroker, group_by_cell
from ottla_operator.plan.home_cells import HomeRequest


class ReplicaLayout:
    """Rules: a partition never has two replicas on one broker; no step brings the replicas of a
    partition into fewer racks or onto fewer nodes than they are in.

    `replicas`: replicas of each partition, by its index in `partitions`; changed in place.
    `targets`: brokers that may be given replicas; other brokers keep theirs unless these are
    removed. `homes`: the home cell of each partition; None if it has none. `count`: number of
    replicas on each target.
    """

    def __init__(self, request: HomeRequest, homes: Sequence[int | None]) -> None:
        partitions, targets = request.partitions, request.targets
        self.partitions = partitions
        self.homes = homes
        self._targets_in = {
            cell: sorted(it.broker for it in brokers) for cell, brokers in group_by_cell(targets, request.cells).items()
        }
        self.targets = sorted(it.broker for it in targets)
        self.replicas = [list(it.replicas) for it in partitions]
        self._racks = {it.broker: it.rack_key for it in targets}
        self._nodes = {it.broker: it.node_key for it in targets}
        self.count = dict.fromkeys(self.targets, 0)
        self._held: dict[int, dict[str, dict[int, None]]] = {it: {} for it in self.targets}
        # Small partitions come first wherever there is a choice: they are copied soonest.
        for index in sorted(range(len(partitions)), key=lambda it: partitions[it].bytes):
            for broker in self.replicas[index]:
                self._count(index, broker)

    def targets_in(self, home: int | None) -> list[int]:
        """Targets that may be given replicas of partitions of this home."""
        return self.targets if home is None else self._targets_in[home]

    def add(self, index: int, broker: int, at: int | None = None) -> None:
        """`at`: position among the replicas; None: the last."""
        assert broker not in self.replicas[index]
        self.replicas[index].insert(len(self.replicas[index]) if at is None else at, broker)
        self._count(index, broker)

    def remove(self, index: int, broker: int) -> None:
        self.replicas[index].remove(broker)
        if broker in self.count:
            self.count[broker] -= 1
            del self._held[broker][self.partitions[index].topic][index]

    def replace(self, index: int, old: int, new: int) -> None:
        """`new` gets the position of `old`, so that a preferred leader is replaced as one."""
        position = self.replicas[index].index(old)
        self.remove(index, old)
        self.add(index, new, position)

    def rack(self, broker: int) -> str:
        return self._racks.get(broker) or UsableBroker(broker).rack_key

    def node(self, broker: int) -> str:
        return self._nodes.get(broker) or UsableBroker(broker).node_key

    def domains(self, index: int, broker: int | None, domain: Callable[[int], str]) -> set[str]:
        """The racks or nodes of the replicas, without that of the replica on `broker`. `domain`:
        `rack` or `node`.
        """
        return {domain(it) for it in self.replicas[index] if it != broker}

    def keeps_spread(self, index: int, old: int, new: int) -> bool:
        """True if the replicas are in no fewer racks and on no fewer nodes after `new` has replaced
        `old`.
        """
        return all(
            domain(new) not in rest or domain(old) in rest
            for domain in (self.rack, self.node)
            for rest in (self.domains(index, old, domain),)
        )

    def choose_broker(self, index: int) -> int | None:
        """The target for one more replica of a partition: in its home cell if a target there has
        none; then in a rack that has none, on a node that has none, with the fewest replicas. None
        if all targets have one.
        """
        racks, nodes = self.domains(index, None, self.rack), self.domains(index, None, self.node)
        topic = self.partitions[index].topic
        replicas = self.replicas[index]
        at_home = [it for it in self.targets_in(self.homes[index]) if it not in replicas]
        return min(
            at_home or (it for it in self.targets if it not in replicas),
            key=lambda it: (
                self.rack(it) in racks,
                self.node(it) in nodes,
                self.count[it],
                self.count_of_topic(it, topic),
                it,
            ),
            default=None,
        )

    def count_of_topic(self, broker: int, topic: str) -> int:
        """Replicas of a topic on a target."""
        return len(self._held[broker].get(topic, ()))

    def partitions_by_excess(self, broker: int, other: int) -> Iterator[int]:
        """Indexes of partitions on `broker`, ordered by topic: first the topic of which `broker`
        exceeds `other` by most replicas. The first topic's partitions come twice.
        """
        held = self._held[broker]

        def excess(topic: str) -> int:
            return self.excess(topic, broker, other)

        if held:  # usually the first topic is enough, and sorting can be avoided
            yield from held[max(held, key=excess)]
        for topic in sorted(held, key=excess, reverse=True):
            yield from held[topic]

    def excess(self, topic: str, broker: int, other: int) -> int:
        """Replicas of a topic that `broker` has more than `other`."""
        return self.count_of_topic(broker, topic) - self.count_of_topic(other, topic)

    def _count(self, index: int, broker: int) -> None:
        if broker in self.count:
            self.count[broker] += 1
            self._held[broker].setdefault(self.partitions[index].topic, {})[index] = None
