"""What is to be done so that a cluster has the brokers that it should, one step at a time.

Invariant: a broker is let go only when it holds nothing, and when no other that was let go counts for the metadata log any more: of three members two that
stop would leave the third without a majority, for ever; partitions are only moved while all brokers that should be there are up, and nothing else is
moving. What cannot be done to its end is not begun. Steps are decided from what is seen, so that a scaling that was broken off anywhere goes on from there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla_broker.metadata.placement import UsableBroker
from ottla_operator.formatting import format_count
from ottla_operator.plan.moves import Move, PartitionReplicas, apply_moves, moves_between
from ottla_operator.plan.reassign import ImpossibleAssignment, change_replication_factor, drain_brokers, spread_replicas


@dataclass(frozen=True, slots=True)
class ScaleInputs:
    """`wanted`: brokers that should be there. `present`: that are there, the leaving ones too. `up`: that the cluster counts on. `moving`: how many
    partitions move now. `spread`: brokers over which partitions were spread before. `factors`: topic of the brokers' own → how many replicas it should
    have if there are enough brokers. `on_scale`: whether partitions are spread when the number of brokers has changed. `members`: those that count for the
    metadata log."""

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
    """The last broker holds nothing any more: stop it and forget it."""

    broker: int


@dataclass(frozen=True, slots=True)
class RecordSpread:
    """Nothing more is to be moved; `brokers` count as known from here on."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class WaitToScale:
    """Something has to come first, by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class ScalingBlocked:
    """It cannot be done; a person has to change something."""

    reason: str


@dataclass(frozen=True, slots=True)
class ScalingComplete:
    pass


ScaleStep: TypeAlias = MovePartitions | RemoveBroker | RecordSpread | WaitToScale | ScalingBlocked | ScalingComplete


def next_scale_step(seen: ScaleInputs) -> ScaleStep:
    leaving = seen.present - seen.desired
    if not leaving and seen.spread_over == seen.desired:
        return ScalingComplete()
    if seen.moving:
        return WaitToScale(f"{seen.moving} partitions are moving")
    if away := seen.desired - {it.broker for it in seen.available}:
        return WaitToScale(f"broker {', '.join(map(str, sorted(away)))} is not there yet")
    places = [it for it in seen.available if it.broker in seen.desired]
    own = _own_topics(seen, places)
    try:
        off = drain_brokers(apply_moves(seen.partitions, own), places, leaving) if leaving else ()
    except ImpossibleAssignment as error:
        return ScalingBlocked(str(error))
    if own:
        return MovePartitions(own, f"the brokers' own topics for {format_count(len(places), 'broker')}")
    if off:
        return MovePartitions(off, f"off broker {', '.join(map(str, sorted(leaving)))}")
    if leaving and (gone := seen.voters - seen.present):
        return WaitToScale(
            f"the metadata log still counts on broker {', '.join(map(str, sorted(gone)))}, which was let go"
        )
    if leaving:
        return RemoveBroker(max(leaving))
    if seen.spread_over and seen.on_scale and (moves := spread_replicas(seen.partitions, places)):
        return MovePartitions(moves, f"spread over broker {', '.join(map(str, sorted(seen.desired)))}")
    return RecordSpread(seen.desired)


def _own_topics(seen: ScaleInputs, places: Sequence[UsableBroker]) -> tuple[Move, ...]:
    """Brings topics that nobody has described to the number of replicas that suits as many brokers."""
    after = seen.partitions
    for topic, factor in sorted(seen.replication_factors.items()):
        fitting = min(factor, len(places))
        has = {len(it.replicas) for it in after if it.topic == topic}
        if any(it < fitting or it > len(places) for it in has):
            after = apply_moves(after, change_replication_factor(after, places, {topic}, fitting))
    return moves_between(seen.partitions, after)
