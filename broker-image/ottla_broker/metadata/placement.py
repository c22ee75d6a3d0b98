"""Assignment of replicas to brokers: pure, shared by the controller and the operator's plans.

Invariants: the replicas of a partition are on distinct brokers, in as many racks as there are (up
to the replication factor). Over the partitions of one call, the numbers of partitions that brokers
lead differ by at most one.

The leaders are consecutive brokers of an order in which neighbours are in different racks.
Followers are the brokers with the fewest replicas among those that come next, from a distance that
shifts. So replica counts differ by at most two, as far as racks allow, and the partitions of a
failed broker fall to many others.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

# Brokers compared for one replica, which bounds the cost of a placement in clusters of hundreds of
# brokers.
MAX_COMPARED_BROKERS = 24


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may be assigned replicas. Without a `rack` it counts as a rack of its own."""

    broker: int
    rack: str | None = None


def alternate_racks(brokers: Sequence[UsableBroker]) -> list[UsableBroker]:
    """Brokers in an order that takes one of each rack in turn."""
    racks: dict[str, list[UsableBroker]] = defaultdict(list)
    for broker in sorted(brokers, key=lambda it: it.broker):
        racks[broker.rack if broker.rack is not None else f"broker {broker.broker}"].append(broker)
    columns = [racks[rack] for rack in sorted(racks, key=lambda rack: (-len(racks[rack]), racks[rack][0].broker))]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def assign_replicas(
    partitions: int,
    replication_factor: int,
    brokers: Sequence[UsableBroker],
    *,
    start: int = 0,
    shift: int = 0,
    replica_counts: Mapping[int, int] | None = None,
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, the preferred leader first.

    `start`, `shift`: a running or random number, so that topics of one partition are not all on the
    first broker. `replica_counts`: existing replicas by broker. Raises ValueError when there are
    fewer brokers than replicas.
    """
    if replication_factor < 1 or replication_factor > len(brokers):
        raise ValueError(
            f"replication factor {replication_factor} is not between 1 and the number of brokers, {len(brokers)}"
        )
    order = alternate_racks(brokers)
    load = Counter(replica_counts or {})
    load.update(
        order[(start + index) % len(order)].broker for index in range(partitions)
    )  # leaders do not depend on load
    assigned = []
    for index in range(partitions):
        replicas = _assign_partition(order, replication_factor, start + index, shift + index // len(order), load)
        load.update(replicas[1:])
        assigned.append(replicas)
    return assigned


def _assign_partition(
    order: Sequence[UsableBroker], count: int, leader: int, shift: int, load: Mapping[int, int]
) -> tuple[int, ...]:
    first = order[leader % len(order)]
    chosen, racks = [first.broker], {first.rack}
    near = list(islice(_others(order, leader, shift), MAX_COMPARED_BROKERS)) if count > 1 else []
    while len(chosen) < count:
        others = [broker for broker in near if broker.broker not in chosen]
        new_racks = [broker for broker in others if broker.rack is None or broker.rack not in racks]
        if not new_racks and len(order) > len(near) + 1:  # another rack may come later in the order
            near = list(_others(order, leader, shift))
            continue
        least_loaded = min(new_racks or others, key=lambda broker: load[broker.broker])
        chosen.append(least_loaded.broker)
        racks.add(least_loaded.rack)
    return tuple(chosen)


def _others(order: Sequence[UsableBroker], leader: int, shift: int) -> Iterator[UsableBroker]:
    """All brokers but the leader, from a shifting distance on."""
    size = len(order)
    return (order[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1))


def least_loaded_start(brokers: Sequence[UsableBroker], leader_counts: Mapping[int, int]) -> int:
    """The position of the broker that leads the fewest partitions: the `start` for the next
    topic.
    """
    order = alternate_racks(brokers)
    return min(range(len(order)), key=lambda index: (leader_counts.get(order[index].broker, 0), index), default=0)
