"""Chooses the cell in which all replicas of a partition will be: its home.

Invariant: a home can hold the partition in as many racks and on as many nodes as all targets could.
A partition without such a cell has no home. Replicas on brokers that are neither targets nor
leaving stay where they are, and so does the home of their partition.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.metadata.placement import UsableBroker, count_domains, group_by_cell
from ottla_operator.plan.moves import PartitionReplicas


@dataclass(frozen=True, slots=True)
class HomeRequest:
    """`partitions` with their numbers of replicas after the plan, `counts`. `cells`: number of the
    cell of each broker. `leaving`: brokers that lose all their replicas.
    """

    partitions: Sequence[PartitionReplicas]
    counts: Sequence[int]
    targets: Sequence[UsableBroker]
    cells: Mapping[int, int]
    leaving: Collection[int] = ()


def nearest_cells(request: HomeRequest) -> list[int | None]:
    """The home of each partition is the cell with most of its replicas. Among equals it is the one
    with the fewest replicas for its size. None for a partition that no single cell can hold.
    """
    return _Homes(request).homes


def balanced_cells(request: HomeRequest) -> list[int | None]:
    """Homes with which the replicas of each cell are in proportion to its brokers, to within half a
    partition. As few replicas as possible are outside of their home."""
    homes = _Homes(request)
    homes.balance()
    return homes.homes


class _Homes:
    """`load`: cell → number of replicas of the partitions whose home it is. `size`: cell → number
    of its targets. `homes`: None for a partition that no single cell can hold.
    """

    def __init__(self, request: HomeRequest) -> None:
        self._request = request
        by_cell = group_by_cell(request.targets, request.cells)
        self._domains = {cell: count_domains(brokers) for cell, brokers in by_cell.items()}
        self._all_domains = count_domains(request.targets)
        self._fitting: dict[int, list[int]] = {}
        self._targets = {it.broker for it in request.targets}
        self._smallest_count = min(request.counts, default=1)
        self.size = {cell: len(brokers) for cell, brokers in by_cell.items()}
        self.load = dict.fromkeys(by_cell, 0)
        # cell → topic → indexes of partitions that may get another home, small ones first
        self._movable: dict[int, dict[str, dict[int, None]]] = {it: defaultdict(dict) for it in by_cell}
        self._scattered: dict[int, dict[int, None]] = {it: {} for it in by_cell}
        self._replicas_in = [self._count_replicas(it) for it in request.partitions]
        self.homes: list[int | None] = [None] * len(request.partitions)
        # Partitions that are in one cell come first, so that the others even out the load.
        order = sorted(
            range(len(request.partitions)), key=lambda it: (len(self._replicas_in[it]), request.partitions[it].bytes)
        )
        for index in order:
            if (home := self._nearest_cell(index)) is not None:
                self._assign_home(index, home)

    def balance(self) -> None:
        while (step := self._find_step()) is not None:
            index, home = step
            self._clear_home(index)
            self._assign_home(index, home)

    def _count_replicas(self, partition: PartitionReplicas) -> Counter[int | None]:
        """Replicas that can stay, by cell."""
        cells, leaving = self._request.cells, self._request.leaving
        return Counter(cells.get(it) for it in partition.replicas if it not in leaving)

    def _fitting_cells(self, count: int) -> list[int]:
        """Cells that can hold a partition of `count` replicas."""
        if count not in self._fitting:
            found = [cell for cell, it in self._domains.items() if it.can_hold(count, self._all_domains)]
            self._fitting[count] = list(self._domains) if len(self._domains) == 1 else found
        return self._fitting[count]

    def _count_immovable(self, index: int) -> Counter[int | None]:
        """Replicas on brokers that are neither targets nor leaving, by cell."""
        cells, leaving = self._request.cells, self._request.leaving
        replicas = self._request.partitions[index].replicas
        return Counter(cells.get(it) for it in replicas if it not in self._targets and it not in leaving)

    def _nearest_cell(self, index: int) -> int | None:
        immovable = self._count_immovable(index)
        candidates = [cell for cell in self.size if immovable[cell]] or self._fitting_cells(self._request.counts[index])
        return min(
            candidates,
            key=lambda it: (-immovable[it], -self._replicas_in[index][it], self.load[it] / self.size[it], it),
            default=None,
        )

    def _assign_home(self, index: int, home: int) -> None:
        self.homes[index] = home
        self.load[home] += self._request.counts[index]
        if not self._count_immovable(index):
            self._movable[home][self._request.partitions[index].topic][index] = None
            if len(self._replicas_in[index]) > 1:
                self._scattered[home][index] = None

    def _clear_home(self, index: int) -> None:
        home = self.homes[index]
        assert home is not None
        self.load[home] -= self._request.counts[index]
        del self._movable[home][self._request.partitions[index].topic][index]
        self._scattered[home].pop(index, None)

    def _find_step(self) -> tuple[int, int] | None:
        """A partition and its better home: from the fullest cell that has such a partition to the
        emptiest cell that can take it. None if no move evens out the load.
        """
        by_load = sorted(self.load, key=lambda it: (self.load[it] / self.size[it], it))
        for high in reversed(by_load):
            for low in by_load:
                if not self._evens_out(high, low, self._smallest_count):
                    continue
                for index in self._candidates(high, low):
                    count = self._request.counts[index]
                    if low in self._fitting_cells(count) and self._evens_out(high, low, count):
                        return index, low
        return None

    def _evens_out(self, high: int, low: int, count: int) -> bool:
        """True if moving `count` replicas from `high` to `low` makes the cells more even. The sum
        of load² / size falls with each step, so steps end.
        """
        return (self.load[low] + count / 2) / self.size[low] < (self.load[high] - count / 2) / self.size[high]

    def _candidates(self, high: int, low: int) -> Iterator[int]:
        """Partitions of `high`: first those that have replicas in `low`, which cost least. Then
        all, ordered by topic: first the topic of which `high` exceeds `low` by most partitions.
        """
        movable, others = self._movable[high], self._movable[low]
        partly = [it for it in self._scattered[high] if self._replicas_in[it][low]]
        yield from sorted(partly, key=lambda it: self._replicas_in[it][high] - self._replicas_in[it][low])
        for topic in sorted(movable, key=lambda it: len(others.get(it, ())) - len(movable[it])):
            yield from movable[topic]
