"""Division of brokers into cells: pure, shared by the controller and the operator's plans.

The replicas of a partition are on brokers of one cell where the cell has enough racks and nodes, so
a broker follows the brokers of its cell and no others, however large the cluster is.

Invariants: the brokers of a node are in one cell. Fewer than 18 brokers are one cell. The result
follows from the set of brokers alone, whether they are up or not. Each of several cells has at
least nine brokers, and can hold three replicas in as many racks and on as many nodes as the whole
cluster. With up to five racks of equally many brokers, or without racks, a broker that is added
after all others either joins the last cell or divides it; the other cells keep their brokers.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from ottla_broker.metadata.placement import UsableBroker

MIN_CELL_SIZE = 9
# Racks of a cell, if there are so many, or else nodes: enough for three replicas.
MIN_CELL_RACKS = 3

Node = list[UsableBroker]
Rack = list[Node]
T = TypeVar("T")


def divide_into_cells(brokers: Collection[UsableBroker]) -> dict[int, int]:
    """Number of the cell of each broker, by the broker's id. `brokers`: all registered brokers,
    also fenced ones.
    """
    if len(brokers) < 2 * MIN_CELL_SIZE:
        return {it.broker: 0 for it in brokers}
    cells: list[list[UsableBroker]] = []
    for racks in _group_racks(_list_racks(brokers)):
        cells += _divide_racks(racks)
    return {it.broker: number for number, cell in enumerate(cells) for it in cell}


def _list_racks(brokers: Collection[UsableBroker]) -> list[Rack]:
    """Racks and, in each rack, its nodes, in the order of their lowest broker ids."""
    racks: dict[str, dict[str, Node]] = defaultdict(lambda: defaultdict(list))
    for it in sorted(brokers, key=lambda it: it.broker):
        racks[it.rack_key][it.node_key].append(it)
    return [list(nodes.values()) for nodes in racks.values()]


def _group_racks(racks: Sequence[Rack]) -> list[list[Rack]]:
    """Groups of neighbouring racks that are as small as a cell may be. Without racks, each node
    counts as a rack.
    """

    def is_enough(group: Sequence[Rack]) -> bool:
        return len(group) >= MIN_CELL_RACKS and sum(map(_count_brokers, group)) >= MIN_CELL_SIZE

    groups = _cut(racks, is_enough)
    if len(groups) > 1 and not is_enough(groups[-1]):
        rest = groups.pop()
        groups[-1] += rest
    return groups


def _divide_racks(racks: Sequence[Rack]) -> list[list[UsableBroker]]:
    """The cells of one group of racks. Each rack is cut into blocks of its nodes, and the n-th cell
    gets the n-th block of each rack. There are as many cells as have complete blocks of enough
    racks. The last cell also gets the blocks that follow its own, from which the next cell will be
    made. Larger racks have further blocks, which go to the cells in turn.
    """
    needed_racks = min(len(racks), MIN_CELL_RACKS)

    def is_complete(block: Sequence[Node]) -> bool:
        return needed_racks * _count_brokers(block) >= MIN_CELL_SIZE and needed_racks * len(block) >= MIN_CELL_RACKS

    blocks = [_cut(rack, is_complete) for rack in racks]
    complete_counts = sorted((sum(map(is_complete, of_rack)) for of_rack in blocks), reverse=True)
    cells: list[list[UsableBroker]] = [[] for _ in range(max(1, complete_counts[needed_racks - 1]))]
    for of_rack in blocks:
        for number, block in enumerate(of_rack):
            further = number - len(cells) - 1
            cell = number if number < len(cells) else further % len(cells)  # −1: the last
            cells[cell] += [broker for node in block for broker in node]
    return cells


def _count_brokers(nodes: Sequence[Node]) -> int:
    """Number of brokers on these nodes."""
    return sum(map(len, nodes))


def _cut(items: Sequence[T], is_enough: Callable[[Sequence[T]], bool]) -> list[list[T]]:
    """Cuts a sequence into parts that end as soon as they are enough. The last may be too small."""
    parts: list[list[T]] = []
    for item in items:
        if not parts or is_enough(parts[-1]):
            parts.append([])
        parts[-1].append(item)
    return parts
