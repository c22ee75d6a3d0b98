"""More and fewer brokers: partitions spread to those that come and moved off those that go, one step of the plan at a time."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.formatting import format_count
from ottla_operator.kafka import cluster as clusters
from ottla_operator.kafka import elections, quorum, reassignment_inputs, reassignments, throttle
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs
from ottla_operator.kube.children import Seen
from ottla_operator.plan import scale
from ottla_operator.plan.broker_processes import OFFSETS_FACTOR
from ottla_operator.plan.moves import Move
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.desired import broker_ids
from ottla_operator.plan.objects.settings import Settings
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_quantity

OWN_TOPICS = {"__consumer_offsets": OFFSETS_FACTOR}
LONGEST_NOTE: Final = 64 * 1024  # all annotations of an object together have 256 KiB
ALL: Final = "*"  # no topic's name


@dataclass(slots=True)
class Scaled:
    """`brokers`: pods that there shall be now. `notes`: what is to be noted down. `doing`: in words; `refused`: why it cannot be done. `said`: what was
    begun or ended now. `begun`: how many partitions were set going now."""

    brokers: int
    notes: dict[str, str]
    doing: str = ""
    refused: str = ""
    said: list[str] = field(default_factory=list)
    begun: int = 0


def spread_over(notes: Mapping[str, str]) -> frozenset[int]:
    """Brokers over which partitions were last spread."""
    return frozenset(int(it) for it in notes.get(names.SPREAD_OVER, "").split(",") if it)


def settled(cluster: Cluster, brokers: int, notes: Mapping[str, str]) -> bool:
    """Whether nothing is to be moved, without asking anybody."""
    every = ",".join(map(str, broker_ids(cluster.spec.replicas)))
    return (
        brokers == cluster.spec.replicas
        and notes.get(names.SPREAD_OVER) == every
        and not notes.get(names.THROTTLED_TOPICS)
    )


async def step(link: KafkaClient, cluster: Cluster, seen: Seen, brokers: int, common: Settings) -> Scaled:
    """Does what can be done now towards the number of brokers that is wished. `brokers`: pods that there shall be so far."""
    found = await reassignment_inputs.read_reassignment_inputs(link)
    done = Scaled(brokers, dict(seen.notes))
    rebalance = cluster.spec.rebalance
    match scale.next_scale_step(
        scale.ScaleInputs(
            desired=frozenset(broker_ids(cluster.spec.replicas)),
            present=frozenset(broker_ids(brokers)),
            available=found.brokers,
            partitions=found.partitions,
            moving=len(found.reassignments),
            spread_over=spread_over(seen.notes),
            voters=await quorum.list_voters(link),
            replication_factors={
                topic: int(common[key]) for topic, key in OWN_TOPICS.items() if common.get(key, "").isdigit()
            },
            on_scale=rebalance is None or rebalance.on_scale is not False,
        )
    ):
        case scale.MovePartitions(moves, why):
            done.doing = f"{format_count(len(moves), 'partition')} to move, {why}"
            if await _move(link, cluster, found, moves, done):
                done.said.append(done.doing)
        case scale.RemoveBroker(broker):
            done.brokers = broker - 1  # a StatefulSet lets its last pod go, and no other
            done.said.append(
                f"broker {broker} holds nothing any more: it is stopped, its disk stays or goes as the storage says"
            )
            done.doing = f"letting broker {broker} go"
        case scale.RecordSpread(spread):
            await _end(link, found, done)
            done.notes[names.SPREAD_OVER] = ",".join(map(str, sorted(spread)))
            if spread_over(seen.notes) - spread:
                done.doing = f"what suits {format_count(len(spread), 'broker')} holds from here on"
        case scale.ScalingBlocked(why):
            done.refused = f"the brokers stay as they are: {why}"
        case scale.WaitToScale(why):
            done.doing = why
        case scale.ScalingComplete():
            await _end(link, found, done)
    return done


async def _move(
    link: KafkaClient, cluster: Cluster, found: ReassignmentInputs, moves: tuple[Move, ...], done: Scaled
) -> bool:
    """Whether it was begun. A throttle is noted down first, in a look of its own, so that it is taken off whatever happens to us."""
    rebalance = cluster.spec.rebalance
    if rebalance and rebalance.throttle and any(it.adding for it in moves):
        noted = set(json.loads(done.notes.get(names.THROTTLED_TOPICS, "[]")))
        topics = {it.topic for it in moves}
        if ALL not in noted and not topics <= noted:
            done.notes[names.THROTTLED_TOPICS] = note_of_throttled(noted | topics)
            return False
        await throttle.set_throttle(link, moves, int(parse_quantity(rebalance.throttle)), found.broker_ids)
    await reassignments.reassign_partitions(link, {(it.topic, it.partition): it.after for it in moves})
    done.begun = len(moves)
    return True


def note_of_throttled(topics: Collection[str]) -> str:
    """As JSON: their names, or `ALL` when they are too many for an annotation."""
    text = json.dumps(sorted(topics))
    return text if len(text) <= LONGEST_NOTE else json.dumps([ALL])


async def _end(link: KafkaClient, found: ReassignmentInputs, done: Scaled) -> None:
    """Takes off what a move may have left, and has partitions led as they should be."""
    if throttled := json.loads(done.notes.pop(names.THROTTLED_TOPICS, "[]")):
        every = {it.topic for it in found.partitions}
        await throttle.remove_throttle(link, found.broker_ids, sorted(every) if ALL in throttled else throttled)
    others = [
        (it.topic, it.partition) for it in found.partitions if it.leader != it.replicas[0] and it.replicas[0] in it.isr
    ]
    if others:
        await elections.elect_preferred_leaders(link, others)


@dataclass(frozen=True, slots=True)
class Gone:
    """Brokers that were let go: they have no pod and are fenced. `forgotten`: those that have been unregistered now. `holding`: those that hold replicas all
    the same, of topics that were made while they were stopped."""

    forgotten: tuple[int, ...] = ()
    holding: tuple[int, ...] = ()


async def forget_gone(link: KafkaClient, seen: Seen, brokers: int) -> Gone:
    """Unregisters brokers that were let go and will not come back."""
    gone = [
        it.id
        for it in (await clusters.describe_cluster_with_fenced_brokers(link)).brokers
        if it.is_fenced and it.id > brokers and it.id not in seen.pods
    ]
    if not gone:
        return Gone()
    found = await reassignment_inputs.read_reassignment_inputs(link)
    held = {broker for it in found.partitions for broker in it.replicas}
    forgotten = tuple(it for it in gone if it not in held)
    for it in forgotten:
        await clusters.unregister_broker(link, it)
    return Gone(forgotten, tuple(it for it in gone if it in held))
