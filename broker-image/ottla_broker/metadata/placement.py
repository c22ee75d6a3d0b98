"""Where replicas live: pure, shared by the controller and the operator's plans.

Invariant: every partition gets distinct brokers; replicas of one partition are spread over as many racks as there are (up to the
replication factor); over the partitions placed in one call, leaders differ by at most one between brokers, and replicas stay even
where racks are even. It is kept by walking a ring of brokers in which neighbours are in different racks, one step per partition for
the leader and a shifting stride for the followers, so that the load of a dead broker falls on many others and not on its neighbour.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A broker that may be given replicas. `rack` None: racks are not known, every broker is its own."""

    broker: int
    rack: str | None = None


def ring(places: Sequence[Place]) -> list[Place]:
    """Brokers in an order that takes one of each rack in turn."""
    racks: dict[str, list[Place]] = defaultdict(list)
    for place in sorted(places, key=lambda p: p.broker):
        racks[place.rack if place.rack is not None else f"broker {place.broker}"].append(place)
    columns = [racks[rack] for rack in sorted(racks, key=lambda r: (-len(racks[r]), racks[r][0].broker))]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def place(
    partitions: int, replication_factor: int, places: Sequence[Place], *, start: int = 0, shift: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, the preferred leader first.

    `start`, `shift`: where on the ring to begin, so that one-partition topics do not all land on the first broker (a caller passes
    a running or random number). ValueError when there are fewer brokers than replicas.
    """
    if replication_factor < 1 or replication_factor > len(places):
        raise ValueError(
            f"replication factor {replication_factor} is not between 1 and the number of brokers, {len(places)}"
        )
    order = ring(places)
    return [_replicas(order, replication_factor, start + p, shift + p // len(order)) for p in range(partitions)]


def _replicas(order: Sequence[Place], count: int, leader: int, shift: int) -> tuple[int, ...]:
    size = len(order)
    first = order[leader % size]
    others = [order[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)] if size > 1 else []
    chosen, racks = [first], {first.rack}
    for wanted_new_rack in (True, False):  # first a broker of each other rack, then whoever is next
        for candidate in others:
            if len(chosen) == count:
                break
            is_new_rack = candidate.rack is None or candidate.rack not in racks
            if candidate not in chosen and is_new_rack >= wanted_new_rack:
                chosen.append(candidate)
                racks.add(candidate.rack)
    return tuple(p.broker for p in chosen)


def least_loaded_start(places: Sequence[Place], leaders: Mapping[int, int] | Counter[int]) -> int:
    """The position on the ring of the broker that leads the fewest partitions: where the next topic should begin."""
    order = ring(places)
    return min(range(len(order)), key=lambda i: (leaders.get(order[i].broker, 0), i), default=0)
