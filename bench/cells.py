"""How many leaders a broker follows, and what a scale-up copies, with and without cells.

    python -m bench.cells

Nothing is measured but counts: the controller's placement and the operator's plans are pure.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ottla_broker.metadata.cells import divide_into_cells
from ottla_broker.metadata.placement import ONE_CELL, UsableBroker, assign_replicas, least_loaded_start
from ottla_operator.plan.moves import PartitionReplicas, apply_moves, estimate_cost
from ottla_operator.plan.reassign import spread_replicas

RACKS, REPLICAS = 3, 3
PLACED_BROKERS = 300
PLACED_TOPICS = ((100, 1000), (1000, 100))  # topics, partitions of each
SCALE_UPS = ((15, 16), (17, 18), (18, 27), (30, 31), (30, 60))
MOVED_TOPICS = 30, 100


def main() -> None:
    placed = Table("brokers", "topics", "partitions of each", "cells", "followed", "led", "replicas")
    for topics, partitions in PLACED_TOPICS:
        brokers = build_brokers(PLACED_BROKERS)
        for cells in (ONE_CELL, divide_into_cells(brokers)):
            found = place_topics(brokers, topics, partitions, cells)
            number = len(set(cells.values())) or 1
            placed.add_row(*map(str, (PLACED_BROKERS, topics, partitions, number)), *describe_loads(found, brokers))
    moved = Table("from", "to", "racks", "copied", "least", "followed", "led", "replicas")
    for racks in (RACKS, 0):
        for before, after in SCALE_UPS:
            moved.add_row(str(before), str(after), str(racks), *describe_scale_up(before, after, racks))
    console = Console(width=120)
    console.print(placed)
    console.print(moved)


def build_brokers(count: int, racks: int = RACKS) -> list[UsableBroker]:
    return [UsableBroker(it, f"rack-{it % racks}" if racks else None) for it in range(1, count + 1)]


def place_topics(
    brokers: Sequence[UsableBroker], topics: int, partitions: int, cells: Mapping[int, int]
) -> list[PartitionReplicas]:
    """Partitions as the controller places them on a cluster that has none yet."""
    led, held = Counter[int](), Counter[int]()
    found = []
    for number in range(topics):
        start = least_loaded_start(brokers, led, cells)
        placed = assign_replicas(
            partitions, REPLICAS, brokers, start=start, shift=number, replica_counts=held, cells=cells
        )
        led.update(it[0] for it in placed)
        held.update(broker for it in placed for broker in it)
        found += [PartitionReplicas(f"t{number}", n, it, it, it[0], 1) for n, it in enumerate(placed)]
    return found


def describe_loads(partitions: Iterable[PartitionReplicas], brokers: Collection[UsableBroker]) -> tuple[str, str, str]:
    """The most leaders that a broker follows; the least and the most partitions that a broker
    leads; the same of replicas.
    """
    followed: dict[int, set[int]] = defaultdict(set)
    led, held = Counter[int](), Counter[int]()
    for it in partitions:
        led[it.replicas[0]] += 1
        held.update(it.replicas)
        for broker in it.replicas[1:]:
            followed[broker].add(it.replicas[0])
    ranges = [[counts[it.broker] for it in brokers] for counts in (led, held)]
    leaders, replicas = (f"{min(it)} to {max(it)}" for it in ranges)
    return str(max(map(len, followed.values()))), leaders, replicas


def describe_scale_up(before: int, after: int, racks: int) -> tuple[str, str, str, str, str]:
    """Number of replicas that are copied; the least number, without racks and cells; the loads
    after the scale-up.
    """
    brokers, larger = build_brokers(before, racks), build_brokers(after, racks)
    partitions = place_topics(brokers, *MOVED_TOPICS, divide_into_cells(brokers))
    moves = spread_replicas(partitions, larger)
    least = len(partitions) * REPLICAS * (after - before) // after
    return str(estimate_cost(moves).replicas), str(least), *describe_loads(apply_moves(partitions, moves), larger)


if __name__ == "__main__":
    main()
