"""Evens out replicas among brokers, by one move at a time.

Invariant: a move goes from a broker to one that has at least two replicas fewer, in the home cell
of its partition. So each move lowers the sum of the squares of the brokers' replica counts, and the
moves end.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ottla_operator.plan.replica_layout import ReplicaLayout


@dataclass(frozen=True, slots=True)
class _Step:
    """The replica of the partition `index` on `old` moves to `new`."""

    index: int
    old: int
    new: int


def balance_replicas(layout: ReplicaLayout, movable: set[tuple[int, int]] | None) -> None:
    """`movable`: replicas that may move, as (index, broker), kept up to date; None: all."""
    for home in sorted(set(layout.homes), key=lambda it: -1 if it is None else it):  # those without a home first
        steps = _Steps(layout, movable, home)
        while (step := steps.find()) is not None:
            steps.take(step)


class _Steps:
    """Steps between the targets of one home cell.

    If racks or nodes have unequal sizes, a broker may be too full and still have no replica that
    can move. Whether a replica fits elsewhere depends only on the replicas of its partition. So if
    a search between two brokers found no step, the next search looks only at partitions that have
    changed since. `_changed`: their indexes, by the fuller broker, then by the emptier one.
    """

    def __init__(self, layout: ReplicaLayout, movable: set[tuple[int, int]] | None, home: int | None) -> None:
        self._layout = layout
        self._movable = movable
        self._home = home
        self._changed: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)

    def find(self) -> _Step | None:
        """The next step: from the fullest broker of which a replica can move, to the emptiest one
        that can take it. None if no replica can move.
        """
        count = self._layout.count
        by_load = sorted(self._layout.targets_in(self._home), key=lambda it: (count[it], it))
        for high in reversed(by_load):
            for low in by_load:
                if count[high] - count[low] < 2:
                    break
                if (index := self._search(high, low)) is not None:
                    return _Step(index, high, low)
        return None

    def take(self, step: _Step) -> None:
        self._layout.replace(step.index, step.old, step.new)
        if self._movable is not None:
            self._movable.remove((step.index, step.old))
            self._movable.add((step.index, step.new))
        for broker in self._layout.replicas[step.index]:
            for changed in self._changed[broker].values():
                changed.append(step.index)

    def _search(self, high: int, low: int) -> int | None:
        changed = self._changed[high].get(low)
        candidates = self._layout.partitions_by_excess(high, low) if changed is None else self._rank(changed, high, low)
        found = next((it for it in candidates if self._may_move(it, high, low)), None)
        if found is None:
            self._changed[high][low] = []
        return found

    def _rank(self, indexes: Collection[int], high: int, low: int) -> Iterable[int]:
        """Sorts partitions as `partitions_by_excess` does: topics with the largest excess first."""
        partitions = self._layout.partitions
        return sorted(indexes, key=lambda it: -self._layout.excess(partitions[it].topic, high, low))

    def _may_move(self, index: int, high: int, low: int) -> bool:
        layout = self._layout
        return (
            (self._movable is None or (index, high) in self._movable)
            and layout.homes[index] == self._home
            and high in layout.replicas[index]
            and low not in layout.replicas[index]
            and layout.keeps_spread(index, high, low)
        )
