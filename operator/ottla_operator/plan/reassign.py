"""Which partitions get which replicas when brokers come, go, or a topic shall have another number of them.

Invariants: a partition has each broker once; its replicas are in as many racks as they can be, never in fewer than before; only what has to move
moves; where there is a choice, brokers end up with as many replicas as each other, then each topic's do, and so do preferred leaders. With racks of
unequal size, racks go before evenness.
"""

from collections.abc import Collection, Iterable, Sequence

from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.plan.layout import ReplicaLayout
from ottla_operator.plan.moves import Move, PartitionReplicas, planned_move
from ottla_operator.plan.preferred_leaders import balance_preferred_leaders


class ImpossibleAssignment(ValueError):
    """No plan can do what is asked; the text says why."""


def spread_replicas(
    partitions: Sequence[PartitionReplicas], places: Sequence[UsableBroker], leaving: Collection[int] = ()
) -> tuple[Move, ...]:
    """Evenly over `places`. What is on brokers that are `leaving` goes there; brokers that are neither are left alone: they may be away for a while.

    Impossible when a partition has more replicas than there are brokers.
    """
    layout = _layout(partitions, places, leaving)
    _empty(layout, leaving)
    _mend_racks(layout)
    _even_out(layout, None)
    return _moves(layout, range(len(partitions)))


def drain_brokers(
    partitions: Sequence[PartitionReplicas], places: Sequence[UsableBroker], leaving: Collection[int]
) -> tuple[Move, ...]:
    """Takes everything off the brokers that are `leaving`, onto `places`, and moves nothing else. Impossible when there are too few brokers."""
    affected = [it for it in partitions if not set(leaving).isdisjoint(it.replicas)]
    others = [it for it in partitions if set(leaving).isdisjoint(it.replicas)]
    layout = _layout([*affected, *others], places, leaving)
    fresh = _empty(layout, leaving)
    _even_out(layout, fresh)
    return _moves(layout, range(len(affected)))


def change_replication_factor(
    partitions: Sequence[PartitionReplicas], places: Sequence[UsableBroker], wanted: Collection[str], factor: int
) -> tuple[Move, ...]:
    """Gives the partitions of the `wanted` topics `factor` replicas each; the others count for evenness. Replicas on other
    brokers than `places` go first, then those that lag; who leads stays.

    Impossible when there are fewer brokers.
    """
    chosen = [it for it in partitions if it.topic in wanted]
    layout = ReplicaLayout([*chosen, *(it for it in partitions if it.topic not in wanted)], _without(places, ()))
    fresh: set[tuple[int, int]] = set()
    for index, it in enumerate(chosen):
        while len(layout.replicas[index]) > factor:
            layout.remove(index, _least_missed(layout, index, it))
        while len(layout.replicas[index]) < factor:
            if (broker := layout.choose_broker(index)) is None:
                raise ImpossibleAssignment(f"{factor} replicas need as many brokers; there {_are(layout.targets)}")
            layout.add(index, broker)
            fresh.add((index, broker))
    _even_out(layout, fresh)
    return _moves(layout, [index for index, it in enumerate(chosen) if len(it.replicas) != factor])


def _layout(
    partitions: Sequence[PartitionReplicas], places: Sequence[UsableBroker], leaving: Collection[int]
) -> ReplicaLayout:
    return ReplicaLayout(partitions, _without(places, leaving))


def _without(places: Sequence[UsableBroker], leaving: Collection[int]) -> list[UsableBroker]:
    return [it for it in places if it.broker not in leaving]


def _empty(layout: ReplicaLayout, leaving: Collection[int]) -> set[tuple[int, int]]:
    """Replaces every replica on the brokers that leave; the (partition's index, broker) that came instead."""
    fresh: set[tuple[int, int]] = set()
    for index, it in enumerate(layout.partitions):
        for old in [broker for broker in it.replicas if broker in leaving]:
            if (new := _instead(layout, index, old)) is None:
                raise ImpossibleAssignment(
                    f"{it.topic}-{it.partition} has {len(it.replicas)} replicas, which need as many brokers; "
                    f"without {', '.join(map(str, sorted(leaving)))} there {_are(layout.targets)}"
                )
            layout.replace(index, old, new)
            fresh.add((index, new))
    return fresh


def _instead(layout: ReplicaLayout, index: int, old: int) -> int | None:
    """Who is given a replica that leaves: `best`, with the rack of the one that leaves free again."""
    at = layout.replicas[index].index(old)
    layout.remove(index, old)
    found = layout.choose_broker(index)
    layout.add(index, old, at)
    return found


def _least_missed(layout: ReplicaLayout, index: int, partition: PartitionReplicas) -> int:
    """Which replica goes: one that could not be given here, no leader, one that lags, one whose rack has another, one on a broker that holds much."""
    preferred = layout.replicas[index][0]

    def keep(broker: int) -> tuple[bool, bool, bool, bool, bool, int, int]:
        shared = layout.rack(broker) in layout.racks(index, without=broker)
        return (
            broker in layout.targets,
            broker == partition.leader,
            broker in partition.isr,
            broker == preferred,
            not shared,
            -layout.count.get(broker, 0),
            -broker,
        )

    return min(layout.replicas[index], key=keep)


def _mend_racks(layout: ReplicaLayout) -> None:
    """Takes replicas that share a rack to racks that have none of their partition."""
    for index in range(len(layout.partitions)):
        while (better := _into_free_rack(layout, index)) is not None:
            layout.replace(index, *better)


def _into_free_rack(layout: ReplicaLayout, index: int) -> tuple[int, int] | None:
    racks = layout.racks(index)
    sharing = [
        it
        for it in layout.replicas[index]
        if it in layout.targets and layout.rack(it) in layout.racks(index, without=it)
    ]
    free = [it for it in layout.targets if layout.rack(it) not in racks]
    if not sharing or not free:
        return None
    leader = layout.partitions[index].leader
    return (
        min(sharing, key=lambda it: (it == leader, -layout.count[it], it)),
        min(free, key=lambda it: (layout.count[it], it)),
    )


def _even_out(layout: ReplicaLayout, movable: set[tuple[int, int]] | None) -> None:
    """Moves one replica at a time from a broker that holds more to one that holds at least two fewer. `movable`: which may move ((partition's
    index, broker); kept up to date); None: all."""
    while (step := _evening_step(layout, movable)) is not None:
        index, old, new = step
        layout.replace(index, old, new)
        if movable is not None:
            movable.remove((index, old))
            movable.add((index, new))


def _evening_step(layout: ReplicaLayout, movable: set[tuple[int, int]] | None) -> tuple[int, int, int] | None:
    by_load = sorted(layout.targets, key=lambda it: (layout.count[it], it))
    for high in reversed(by_load):
        for low in by_load:
            if layout.count[high] - layout.count[low] < 2:
                break
            for index in layout.movable_partitions(high, low):
                if (
                    (movable is None or (index, high) in movable)
                    and low not in layout.replicas[index]
                    and layout.keeps_racks(index, high, low)
                ):
                    return index, high, low
    return None


def _moves(layout: ReplicaLayout, changeable: Iterable[int]) -> tuple[Move, ...]:
    """What has changed, after leaders were made even by reordering those partitions that may be."""
    indexes = list(changeable)
    balance_preferred_leaders(layout.replicas, [it.topic for it in layout.partitions], indexes, list(layout.targets))
    found = (planned_move(layout.partitions[index], layout.replicas[index]) for index in indexes)
    return tuple(sorted((it for it in found if it is not None), key=lambda it: (it.topic, it.partition)))


def _are(brokers: Collection[int]) -> str:
    if not brokers:
        return "is none"
    listed = ", ".join(map(str, sorted(brokers)))
    return f"is one broker, {listed}" if len(brokers) == 1 else f"are {len(brokers)} brokers: {listed}"
