"""Changes the number of brokers to that of the spec, one step at a time.

Invariant: a broker is removed only when it holds no replica, and when no broker that was removed
before is still a voter of the metadata log: if two of three voters stop, the third never has a
majority again. Partitions are moved only while all desired brokers are available and no other
partition is moving. A scaling that cannot be completed is not begun. Steps follow from the observed
state, so an interrupted scaling continues.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.formatting import format_brokers, format_count
from ottla_operator.plan.moves import Move, PartitionReplicas, apply_moves, moves_between
from ottla_operator.plan.reassign import ImpossibleAssignment, change_replication_factor, drain_brokers, spread_replicas


@dataclass(frozen=True, slots=True)
class ScaleInputs:
    """`desired`: brokers of the spec. `present`: existing brokers, including those being removed.
    `available`: registered and unfenced brokers. `moving`: number of partitions that are being
    reassigned. `spread_over`: brokers over which partitions were last spread.
    `replication_factors`: internal topic → the replication factor that its setting asks for.
    `on_scale`: True if partitions are spread to added brokers. `voters`: voters of the metadata
    log.
    """

    desired: frozenset[int]
    present: frozenset[int]
    available: tuple[UsableBroker, ...]
    partitions: Sequence[PartitionReplicas]
    moving: int
    spread_over: frozenset[int]
    replication_factors: Mapping[str, int]
    on_scale: bool = True
    voters: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MovePartitions:
    moves: tuple[Move, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveBroker:
    """The broker with the highest id holds no replica: stop it."""

    broker: int


@dataclass(frozen=True, slots=True)
class RecordSpread:
    """No more partitions have to move. `brokers`: to be recorded as `spread_over`."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class WaitToScale:
    """Scaling waits for a change that needs no person."""

    reason: str


@dataclass(frozen=True, slots=True)
class ScalingBlocked:
    """Scaling is blocked until a person changes the Cluster or its topics."""

    reason: str


@dataclass(frozen=True, slots=True)
class ScalingComplete:
    pass


ScaleStep: TypeAlias = MovePartitions | RemoveBroker | RecordSpread | WaitToScale | ScalingBlocked | ScalingComplete


def next_scale_step(inputs: ScaleInputs) -> ScaleStep:
    leaving = inputs.present - inputs.desired
    if not leaving and inputs.spread_over == inputs.desired:
        return ScalingComplete()
    if inputs.moving:
        return WaitToScale(f"{format_count(inputs.moving, 'partition')} being reassigned")
    if missing := inputs.desired - {it.broker for it in inputs.available}:
        return WaitToScale(f"waiting for {format_brokers(missing)}")
    targets = [it for it in inputs.available if it.broker in inputs.desired]
    internal = _moves_of_internal_topics(inputs, targets)
    try:
        drained = drain_brokers(apply_moves(inputs.partitions, internal), targets, leaving) if leaving else ()
    except ImpossibleAssignment as error:
        return ScalingBlocked(str(error))
    if internal:
        return MovePartitions(internal, f"internal topics for {format_count(len(targets), 'broker')}")
    if drained:
        return MovePartitions(drained, f"off {format_brokers(leaving)}")
    if leaving and (removed := inputs.voters - inputs.present):
        return WaitToScale(f"waiting for the metadata log to drop removed {format_brokers(removed)} as a voter")
    if leaving:
        return RemoveBroker(max(leaving))
    if inputs.spread_over and inputs.on_scale and (moves := spread_replicas(inputs.partitions, targets)):
        return MovePartitions(moves, f"spread over {format_brokers(inputs.desired)}")
    return RecordSpread(inputs.desired)


def _moves_of_internal_topics(inputs: ScaleInputs, targets: Sequence[UsableBroker]) -> tuple[Move, ...]:
    """Moves that give internal topics, which no Topic describes, the replication factor for this
    number of brokers.
    """
    after = inputs.partitions
    for topic, factor in sorted(inputs.replication_factors.items()):
        possible = min(factor, len(targets))
        counts = {len(it.replicas) for it in after if it.topic == topic}
        if any(it < possible or it > len(targets) for it in counts):
            after = apply_moves(after, change_replication_factor(after, targets, {topic}, possible))
    return moves_between(inputs.partitions, after)
