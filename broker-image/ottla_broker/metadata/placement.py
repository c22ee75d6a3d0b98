"""Assignment of replicas to brokers: pure, shared by the controller and the operator's plans.

Invariants: the replicas of a partition are on distinct brokers, in as many racks and on as many
nodes as there are (up to the replication factor): no two are on one node while a node without a
replica is free. Over the partitions of one call, the numbers of partitions that brokers lead differ
by at most one.

The leaders are consecutive brokers of an order in which neighbours are in different racks and on
different nodes. Followers are the brokers with the fewest replicas among those that come next, from
a distance that shifts. So replica counts differ by at most two, as far as racks and nodes allow,
and the partitions of a failed broker fall to many others.

In a cluster of several cells, consecutive leaders are in different cells, and followers are in the
cell of their leader, in an order of its own. If a cell has too few brokers, racks or nodes for a
partition, its followers are chosen among all brokers.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import msgspec

# Brokers compared for one replica, which bounds the cost of a placement in clusters of hundreds of
# brokers.
MAX_COMPARED_BROKERS = 24

ONE_CELL: Mapping[int, int] = MappingProxyType({})
"""Cells of a cluster that is not divided."""


class UsableBroker(msgspec.Struct, frozen=True):
    """A broker that may be assigned replicas. `node`: the machine or Kubernetes node it runs on;
    nodes of different racks are different. Without a `node` it counts as a node of its own, and
    without a `rack` its node counts as a rack.
    """

    broker: int
    rack: str | None = None
    node: str | None = None

    @property
    def rack_key(self) -> str:
        return f"node {self.node_key}" if self.rack is None else f"rack {self.rack}"

    @property
    def node_key(self) -> str:
        """Equal for two brokers of the same node."""
        return f"broker {self.broker}" if self.node is None else f"{self.rack or ''}/{self.node}"


def alternate_racks(brokers: Sequence[UsableBroker]) -> list[UsableBroker]:
    """Brokers in an order that takes one of each rack in turn, and in a rack one of each node."""
    ordered = sorted(brokers, key=lambda it: it.broker)
    by_node = _alternate(ordered, lambda it: it.node_key)
    return _alternate(by_node, lambda it: it.rack_key)


def _alternate(brokers: Sequence[UsableBroker], key: Callable[[UsableBroker], str]) -> list[UsableBroker]:
    """Takes one broker of each group in turn, of the largest group first. Groups keep their
    order.
    """
    groups: dict[str, list[UsableBroker]] = defaultdict(list)
    for broker in brokers:
        groups[key(broker)].append(broker)
    columns = sorted(groups.values(), key=lambda group: (-len(group), min(it.broker for it in group)))
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def group_by_cell(brokers: Sequence[UsableBroker], cells: Mapping[int, int]) -> dict[int, list[UsableBroker]]:
    """Brokers of each cell. `cells`: number of the cell of each broker."""
    found: dict[int, list[UsableBroker]] = defaultdict(list)
    for broker in brokers:
        found[cells.get(broker.broker, 0)].append(broker)
    return dict(sorted(found.items()))


class FailureDomains(msgspec.Struct, frozen=True):
    """Numbers of brokers, and of the racks and nodes that they are on."""

    brokers: int
    racks: int
    nodes: int

    def can_hold(self, replicas: int, of_all: "FailureDomains") -> bool:
        """True if the replicas of a partition can be on these brokers, in as many racks and on as
        many nodes as if they were placed on all brokers. `of_all`: the domains of all brokers.
        """
        return (
            self.brokers >= replicas
            and self.racks >= min(replicas, of_all.racks)
            and self.nodes >= min(replicas, of_all.nodes)
        )


def count_domains(brokers: Collection[UsableBroker]) -> FailureDomains:
    return FailureDomains(len(brokers), len({it.rack_key for it in brokers}), len({it.node_key for it in brokers}))


def _order_leaders(brokers: Sequence[UsableBroker], cells: Mapping[int, int]) -> list[UsableBroker]:
    """Takes one broker of each cell in turn, from another rack than that of the cell before."""
    columns = [alternate_racks(cell) for cell in group_by_cell(brokers, cells).values()]
    return [
        column[(row + number) % len(column)]
        for row in range(max(map(len, columns), default=0))
        for number, column in enumerate(columns)
        if row < len(column)
    ]


def assign_replicas(
    partitions: int,
    replication_factor: int,
    brokers: Sequence[UsableBroker],
    *,
    start: int = 0,
    shift: int = 0,
    replica_counts: Mapping[int, int] | None = None,
    cells: Mapping[int, int] = ONE_CELL,
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, the preferred leader first.

    `start`, `shift`: running or random numbers, so that topics of one partition are not all on the
    first broker. `replica_counts`: existing replicas by broker. `cells`: number of the cell of each
    broker. Raises ValueError when the replication factor is below 1 or above the number of brokers.
    """
    if replication_factor < 1 or replication_factor > len(brokers):
        raise ValueError(
            f"replication factor {replication_factor} is not between 1 and the number of brokers, {len(brokers)}"
        )
    order = [it.broker for it in _order_leaders(brokers, cells)]
    rings = _rings_of_leaders(brokers, replication_factor, cells)
    load = Counter(replica_counts or {})
    load.update(order[(start + index) % len(order)] for index in range(partitions))  # leaders do not depend on load
    assigned = []
    for index in range(partitions):
        leader = order[(start + index) % len(order)]
        replicas = _assign_partition(rings[leader], replication_factor, leader, shift + index // len(order), load)
        load.update(replicas[1:])
        assigned.append(replicas)
    return assigned


def _rings_of_leaders(
    brokers: Sequence[UsableBroker], replication_factor: int, cells: Mapping[int, int]
) -> dict[int, "_Ring"]:
    """The brokers among which the followers of each leader are chosen: its cell or all."""
    of_all = _Ring(alternate_racks(brokers))
    found = {}
    for cell in group_by_cell(brokers, cells).values():
        ring = _Ring(alternate_racks(cell))
        if not ring.domains.can_hold(replication_factor, of_all.domains):
            ring = of_all
        found.update(dict.fromkeys((it.broker for it in cell), ring))
    return found


class _Ring:
    """The brokers in their order, and the racks and nodes that they are on."""

    def __init__(self, order: Sequence[UsableBroker]) -> None:
        self.order = order
        self.position = {it.broker: position for position, it in enumerate(order)}
        self.rack = {it.broker: it.rack_key for it in order}
        self.node = {it.broker: it.node_key for it in order}
        self.domains = count_domains(order)

    def others(self, leader: int, shift: int) -> Iterator[int]:
        """All brokers but the leader, from a shifting distance on."""
        size, position = len(self.order), self.position[leader]
        return (self.order[(position + 1 + (shift + step) % (size - 1)) % size].broker for step in range(size - 1))


def _assign_partition(ring: _Ring, count: int, leader: int, shift: int, load: Mapping[int, int]) -> tuple[int, ...]:
    """The leader, then the brokers of its ring with the fewest replicas, each in another rack and
    on another node while there is one. `load`: replicas by broker.
    """
    chosen, racks, nodes = [leader], {ring.rack[leader]}, {ring.node[leader]}
    near = list(islice(ring.others(leader, shift), MAX_COMPARED_BROKERS)) if count > 1 else []
    while len(chosen) < count:
        candidates = [broker for broker in near if broker not in chosen]
        if len(racks) < ring.domains.racks:
            candidates = [broker for broker in candidates if ring.rack[broker] not in racks]
        elif len(nodes) < ring.domains.nodes:
            candidates = [broker for broker in candidates if ring.node[broker] not in nodes]
        if not candidates:  # one comes later in the order
            near = list(ring.others(leader, shift))
            continue
        least_loaded = min(candidates, key=lambda broker: load[broker])
        chosen.append(least_loaded)
        racks.add(ring.rack[least_loaded])
        nodes.add(ring.node[least_loaded])
    return tuple(chosen)


def least_loaded_start(
    brokers: Sequence[UsableBroker], leader_counts: Mapping[int, int], cells: Mapping[int, int] = ONE_CELL
) -> int:
    """The position of the broker that leads the fewest partitions: the `start` for the next
    topic.
    """
    order = _order_leaders(brokers, cells)
    return min(range(len(order)), key=lambda index: (leader_counts.get(order[index].broker, 0), index), default=0)
