"""Plans the replicas of partitions when brokers are added or removed, or a topic gets another
replication factor.

Invariants: a partition has each broker at most once; its replicas are in as many racks and on as
many nodes as they can be, never in fewer than before; only what has to move moves; where there is a
choice, brokers end up with equally many replicas, then each topic's replicas do, and so do
preferred leaders. The spread over racks and nodes takes precedence over evenness.

In a cluster of several cells, a replica moves only to a broker of its partition's home cell, where
one cell can hold the partition. Spreading moves whole partitions to emptier cells, and replicas
that are outside of their home cell into it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from ottla_broker.metadata.cells import divide_into_cells
from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.formatting import format_count
from ottla_operator.plan.balance_replicas import balance_replicas
from ottla_operator.plan.home_cells import HomeRequest, balanced_cells, nearest_cells
from ottla_operator.plan.moves import Move, PartitionReplicas, planned_move
from ottla_operator.plan.preferred_leaders import balance_preferred_leaders
from ottla_operator.plan.replica_layout import ReplicaLayout


class ImpossibleAssignment(ValueError):
    """No plan can satisfy the request; the text says why."""


def spread_replicas(
    partitions: Sequence[PartitionReplicas],
    targets: Sequence[UsableBroker],
    leaving: Collection[int] = (),
    *,
    registered: Sequence[UsableBroker] = (),
) -> tuple[Move, ...]:
    """Spreads the replicas of `targets` and of brokers that are `leaving` evenly over `targets`.
    Replicas on other brokers stay, as these may be down for a while. `registered`: the brokers that
    are divided into cells, if these are not just the targets. Raises ImpossibleAssignment if no
    target is left for a replica on a broker that is leaving.
    """
    request = _home_request(partitions, _without(targets, leaving), leaving, registered)
    layout = ReplicaLayout(request, balanced_cells(request))
    _drain(layout, leaving)
    _move_home(layout)
    _separate_replicas(layout, layout.rack)
    _separate_replicas(layout, layout.node)
    balance_replicas(layout, None)
    return _moves(layout, range(len(partitions)))


def drain_brokers(
    partitions: Sequence[PartitionReplicas],
    targets: Sequence[UsableBroker],
    leaving: Collection[int],
    *,
    registered: Sequence[UsableBroker] = (),
) -> tuple[Move, ...]:
    """Moves all replicas off the brokers that are `leaving` to `targets`, and nothing else.
    `registered`: as in `spread_replicas`. Raises ImpossibleAssignment if there are too few
    targets."""
    affected = [it for it in partitions if not set(leaving).isdisjoint(it.replicas)]
    others = [it for it in partitions if set(leaving).isdisjoint(it.replicas)]
    request = _home_request([*affected, *others], _without(targets, leaving), leaving, registered)
    layout = ReplicaLayout(request, nearest_cells(request))
    moved = _drain(layout, leaving)
    balance_replicas(layout, moved)
    return _moves(layout, range(len(affected)))


def change_replication_factor(
    partitions: Sequence[PartitionReplicas],
    targets: Sequence[UsableBroker],
    topics: Collection[str],
    factor: int,
    *,
    registered: Sequence[UsableBroker] = (),
) -> tuple[Move, ...]:
    """Gives the partitions of `topics` `factor` replicas each; the others count for evenness.
    Replicas on other brokers than `targets` go first, then those that are out of sync; leaders
    on targets stay. `registered`: as in `spread_replicas`. Raises ImpossibleAssignment if there are
    fewer targets."""
    chosen = [it for it in partitions if it.topic in topics]
    others = [it for it in partitions if it.topic not in topics]
    request = _home_request([*chosen, *others], targets, (), registered)
    request = replace(request, counts=[*[factor] * len(chosen), *request.counts[len(chosen) :]])
    layout = ReplicaLayout(request, nearest_cells(request))
    added: set[tuple[int, int]] = set()
    for index, partition in enumerate(chosen):
        while len(layout.replicas[index]) > factor:
            layout.remove(index, _replica_to_remove(layout, index, partition))
        while len(layout.replicas[index]) < factor:
            if (broker := layout.choose_broker(index)) is None:
                raise ImpossibleAssignment(f"{factor} replicas need as many brokers; there {_available(layout)}")
            layout.add(index, broker)
            added.add((index, broker))
    balance_replicas(layout, added)
    return _moves(layout, [index for index, it in enumerate(chosen) if len(it.replicas) != factor])


def _home_request(
    partitions: Sequence[PartitionReplicas],
    targets: Sequence[UsableBroker],
    leaving: Collection[int],
    registered: Sequence[UsableBroker],
) -> HomeRequest:
    cells = divide_into_cells(registered or targets)
    return HomeRequest(partitions, [len(it.replicas) for it in partitions], targets, cells, leaving)


def _without(targets: Sequence[UsableBroker], leaving: Collection[int]) -> list[UsableBroker]:
    return [it for it in targets if it.broker not in leaving]


def _drain(layout: ReplicaLayout, leaving: Collection[int]) -> set[tuple[int, int]]:
    """Replaces every replica on the brokers that leave. Returns the replicas that were added, as
    (index, broker). Raises ImpossibleAssignment.
    """
    added: set[tuple[int, int]] = set()
    for index, partition in enumerate(layout.partitions):
        for old in [broker for broker in partition.replicas if broker in leaving]:
            if (new := _replace(layout, index, old)) is None:
                count = len(partition.replicas)
                replicas = f"{format_count(count, 'replica')}, which {'needs' if count == 1 else 'need'}"
                raise ImpossibleAssignment(
                    f"{partition.topic}-{partition.partition} has {replicas} as many brokers; "
                    f"without {', '.join(map(str, sorted(leaving)))} there {_available(layout)}"
                )
            added.add((index, new))
    return added


def _replace(layout: ReplicaLayout, index: int, old: int) -> int | None:
    """Replaces a replica by one on the best target, for which the rack and the node of `old` are
    free. None if there is no target.
    """
    position = layout.replicas[index].index(old)
    layout.remove(index, old)
    if (new := layout.choose_broker(index)) is not None:
        layout.add(index, new, position)
    return new


def _move_home(layout: ReplicaLayout) -> None:
    """Replaces replicas on targets outside of the home cell of their partition. One stays if that
    would bring the replicas into fewer racks or onto fewer nodes, because brokers are down.
    """
    for index, home in enumerate(layout.homes):
        at_home = layout.targets_in(home)
        for old in [it for it in layout.replicas[index] if it in layout.count and it not in at_home]:
            position = layout.replicas[index].index(old)
            layout.remove(index, old)
            new = layout.choose_broker(index)
            if new is None or new not in at_home or not layout.keeps_spread(index, old, new):
                new = old
            layout.add(index, new, position)


def _replica_to_remove(layout: ReplicaLayout, index: int, partition: PartitionReplicas) -> int:
    """The broker whose replica to remove. These are preferred, in this order: one that is no
    target, does not lead, is out of sync, is not the preferred leader, has a rack with another
    replica, has a node with another, has many replicas."""
    preferred = layout.replicas[index][0]

    def value(broker: int) -> tuple[bool, bool, bool, bool, bool, bool, int, int]:
        return (
            broker in layout.count,
            broker == partition.leader,
            broker in partition.isr,
            broker == preferred,
            layout.rack(broker) not in layout.domains(index, broker, layout.rack),
            layout.node(broker) not in layout.domains(index, broker, layout.node),
            -layout.count.get(broker, 0),
            -broker,
        )

    return min(layout.replicas[index], key=value)


def _separate_replicas(layout: ReplicaLayout, domain: Callable[[int], str]) -> None:
    """Moves replicas that share a rack or node to others that have none of their partition.
    `domain`: the layout's `rack` or `node`. A replica that shares a node shares its rack, so moving
    it leaves no rack without one.
    """
    for index in range(len(layout.partitions)):
        while (step := _step_into_free_domain(layout, index, domain)) is not None:
            layout.replace(index, *step)


def _step_into_free_domain(layout: ReplicaLayout, index: int, domain: Callable[[int], str]) -> tuple[int, int] | None:
    taken = layout.domains(index, None, domain)
    replicas = layout.replicas[index]
    if len(taken) == len(replicas):
        return None
    sharing = [it for it in replicas if it in layout.count and domain(it) in layout.domains(index, it, domain)]
    free = [it for it in layout.targets_in(layout.homes[index]) if domain(it) not in taken]
    if not sharing or not free:
        return None
    leader = layout.partitions[index].leader
    return (
        min(sharing, key=lambda it: (it == leader, -layout.count[it], it)),
        min(free, key=lambda it: (layout.count[it], it)),
    )


def _moves(layout: ReplicaLayout, changeable: Iterable[int]) -> tuple[Move, ...]:
    """The differences, after preferred leaders were balanced among the partitions that may
    change.
    """
    indexes = list(changeable)
    topics = [it.topic for it in layout.partitions]
    balance_preferred_leaders(layout.replicas, topics, indexes, list(layout.targets))
    found = (planned_move(layout.partitions[index], layout.replicas[index]) for index in indexes)
    return tuple(sorted((it for it in found if it is not None), key=lambda it: (it.topic, it.partition)))


def _available(layout: ReplicaLayout) -> str:
    """The targets as the end of a sentence that begins with "there"."""
    brokers = sorted(layout.targets)
    if not brokers:
        return "is none"
    listed = ", ".join(map(str, brokers))
    return f"is one broker, {listed}" if len(brokers) == 1 else f"are {len(brokers)} brokers: {listed}"
