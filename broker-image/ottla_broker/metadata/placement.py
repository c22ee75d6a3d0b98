"""Where replicas live: pure, shared by the controller and the operator's plans.

Invariant: every partition gets distinct brokers; replicas of one partition are spread over as many racks as there are (up to the
replication factor); over the partitions placed in one call, leaders differ by at most one between brokers. It is kept by walking a ring of
brokers in which neighbours are in different racks, one step per partition for the leader. Followers are the brokers that hold the fewest
replicas, of those that come next at a shifting distance: so replicas stay even (within two), as far as racks are, and the load of a dead broker falls on many
others and not on its neighbour.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

MAX_COMPARED_BROKERS = (
    24  # brokers that are compared for one replica, so that placing costs no more in a cluster of hundreds
)


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may be given replicas. `rack` None: racks are not known, every broker is its own."""

    broker: int
    rack: str | None = None


def alternate_racks(places: Sequence[UsableBroker]) -> list[UsableBroker]:
    """Brokers in an order that takes one of each rack in turn."""
    racks: dict[str, list[UsableBroker]] = defaultdict(list)
    for place in sorted(places, key=lambda p: p.broker):
        racks[place.rack if place.rack is not None else f"broker {place.broker}"].append(place)
    columns = [racks[rack] for rack in sorted(racks, key=lambda r: (-len(racks[r]), racks[r][0].broker))]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def assign_replicas(
    partitions: int,
    replication_factor: int,
    places: Sequence[UsableBroker],
    *,
    start: int = 0,
    shift: int = 0,
    held: Mapping[int, int] | None = None,
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, the preferred leader first.

    `start`, `shift`: where on the ring to begin, so that one-partition topics do not all land on the first broker (a caller passes
    a running or random number). `held`: how many replicas each broker has already. ValueError when there are fewer brokers than replicas.
    """
    if replication_factor < 1 or replication_factor > len(places):
        raise ValueError(
            f"replication factor {replication_factor} is not between 1 and the number of brokers, {len(places)}"
        )
    order = alternate_racks(places)
    load = Counter(held or {})
    load.update(
        order[(start + p) % len(order)].broker for p in range(partitions)
    )  # leaders are where they are in any case
    placed = []
    for p in range(partitions):
        replicas = _replicas(order, replication_factor, start + p, shift + p // len(order), load)
        load.update(replicas[1:])
        placed.append(replicas)
    return placed


def _replicas(
    order: Sequence[UsableBroker], count: int, leader: int, shift: int, load: Mapping[int, int]
) -> tuple[int, ...]:
    first = order[leader % len(order)]
    chosen, racks = [first.broker], {first.rack}
    near = list(islice(_others(order, leader, shift), MAX_COMPARED_BROKERS)) if count > 1 else []
    while len(chosen) < count:
        others = [one for one in near if one.broker not in chosen]
        new_racks = [one for one in others if one.rack is None or one.rack not in racks]
        if not new_racks and len(order) > len(near) + 1:  # they may come later on the ring
            near = list(_others(order, leader, shift))
            continue
        found = min(new_racks or others, key=lambda one: load[one.broker])  # the first of those that hold the fewest
        chosen.append(found.broker)
        racks.add(found.rack)
    return tuple(chosen)


def _others(order: Sequence[UsableBroker], leader: int, shift: int) -> Iterator[UsableBroker]:
    """All but the leader, from a distance that shifts."""
    size = len(order)
    return (order[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1))


def least_loaded_start(places: Sequence[UsableBroker], leaders: Mapping[int, int] | Counter[int]) -> int:
    """The position on the ring of the broker that leads the fewest partitions: where the next topic should begin."""
    order = alternate_racks(places)
    return min(range(len(order)), key=lambda i: (leaders.get(order[i].broker, 0), i), default=0)
