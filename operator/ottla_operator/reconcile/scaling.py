"""Scales a cluster: spreads partitions to brokers that are added and moves them off brokers that
are removed, one step of `plan/scale.py` at a time."""

from dataclasses import dataclass, field, replace
from typing import Final

from ottla_operator.formatting import format_count, format_size
from ottla_operator.kafka import configs
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.cluster import describe_cluster, unregister_broker
from ottla_operator.kafka.quorum import list_voters
from ottla_operator.kafka.reassignment_inputs import ReassignmentInputs, read_reassignment_inputs
from ottla_operator.kafka.reassignments import reassign_partitions
from ottla_operator.kafka.throttle import remove_throttle, set_throttle
from ottla_operator.plan.cluster_events import ClusterEvent
from ottla_operator.plan.moves import Move, estimate_cost
from ottla_operator.plan.scale import (
    MovePartitions,
    RecordSpread,
    RemoveBroker,
    ScaleInputs,
    ScalingBlocked,
    ScalingComplete,
    WaitToScale,
    next_scale_step,
)
from ottla_operator.plan.settings import (
    OFFSETS_REPLICATION_FACTOR,
    TRANSACTION_STATE_MIN_ISR,
    TRANSACTION_STATE_REPLICATION_FACTOR,
    replication_defaults,
)
from ottla_operator.reconcile.platform import BrokerSet, ReconcileState
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_quantity

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = {
    "__consumer_offsets": OFFSETS_REPLICATION_FACTOR,
    TRANSACTION_STATE_TOPIC: TRANSACTION_STATE_REPLICATION_FACTOR,
}
ALL_TOPICS: Final = "*"
"""Stands for all topics if the throttled ones are too many for a platform to record their names. No
topic can have this name.
"""


@dataclass(slots=True)
class ScalingStep:
    """`count`: number of brokers that must exist now. `in_progress`: the step in progress, as text.
    `blocked`: why scaling cannot continue. `moves_started`: number of partitions that began to
    move.
    """

    count: int
    state: ReconcileState
    in_progress: str = ""
    blocked: str = ""
    events: list[ClusterEvent] = field(default_factory=list)
    moves_started: int = 0


def is_scaled(cluster: Cluster, brokers: BrokerSet) -> bool:
    """True if no step is left, not even the removal of a throttle. Sends no request."""
    state, desired = brokers.state, frozenset(brokers.desired)
    return brokers.count == cluster.spec.replicas and state.spread_over == desired and not state.throttled_topics


async def scale_step(client: KafkaClient, cluster: Cluster, brokers: BrokerSet) -> ScalingStep:
    """Does the next step towards the number of brokers that the spec asks for."""
    inputs = await read_reassignment_inputs(client)
    scaled = ScalingStep(brokers.count, brokers.state)
    rebalance = cluster.spec.rebalance
    settings = next(iter(brokers.desired.values()))
    match next_scale_step(
        ScaleInputs(
            desired=frozenset(brokers.desired),
            present=frozenset(range(1, brokers.count + 1)),
            available=inputs.brokers,
            partitions=inputs.partitions,
            moving=len(inputs.reassignments),
            spread_over=brokers.state.spread_over,
            voters=await list_voters(client),
            replication_factors={
                topic: int(settings[key]) for topic, key in INTERNAL_TOPICS.items() if settings.get(key, "").isdigit()
            },
            on_scale=rebalance is None or rebalance.on_scale is not False,
        )
    ):
        case MovePartitions(moves, reason):
            await _move(client, cluster, inputs, moves, reason, scaled)
        case RemoveBroker(broker):
            scaled.count = broker - 1
            scaled.in_progress = f"removing broker {broker}"
            scaled.events.append(ClusterEvent("RemovingBroker", f"stopping broker {broker}, which holds no replicas"))
        case RecordSpread(spread_over):
            await _remove_throttle(client, inputs, scaled)
            await _set_min_isr_of_transactions(client, cluster, inputs, len(spread_over), scaled)
            if scaled.state.spread_over - spread_over:
                brokers_left = format_count(len(spread_over), "broker")
                scaled.in_progress = f"replication defaults now follow from {brokers_left}"
            scaled.state = replace(scaled.state, spread_over=spread_over)
        case ScalingBlocked(reason):
            scaled.blocked = f"the brokers stay as they are: {reason}"
        case WaitToScale(reason):
            scaled.in_progress = reason
        case ScalingComplete():
            await _remove_throttle(client, inputs, scaled)
    return scaled


async def _move(
    client: KafkaClient,
    cluster: Cluster,
    inputs: ReassignmentInputs,
    moves: tuple[Move, ...],
    reason: str,
    scaled: ScalingStep,
) -> None:
    """Starts the moves. With a throttle they start at the next reconciliation, after the throttled
    topics were recorded: so the throttle is removed even if this process is killed.
    """
    cost = estimate_cost(moves)
    copies = f", {format_size(cost.bytes)} to copy" if cost.replicas else ""
    scaled.in_progress = f"{format_count(len(moves), 'partition')} to move, {reason}{copies}"
    rebalance = cluster.spec.rebalance
    if rebalance and rebalance.throttle and cost.replicas:
        throttled, topics = scaled.state.throttled_topics, {it.topic for it in moves}
        if ALL_TOPICS not in throttled and not topics <= throttled:
            scaled.state = replace(scaled.state, throttled_topics=throttled | topics)
            return
        await set_throttle(client, moves, int(parse_quantity(rebalance.throttle)), inputs.broker_ids)
    await reassign_partitions(client, {(it.topic, it.partition): it.after for it in moves})
    scaled.moves_started = len(moves)
    scaled.events.append(ClusterEvent("MovingPartitions", scaled.in_progress))


async def _remove_throttle(client: KafkaClient, inputs: ReassignmentInputs, scaled: ScalingStep) -> None:
    if not (throttled := scaled.state.throttled_topics):
        return
    topics = {it.topic for it in inputs.partitions} if ALL_TOPICS in throttled else throttled
    await remove_throttle(client, inputs.broker_ids, sorted(topics))
    scaled.state = replace(scaled.state, throttled_topics=frozenset())


async def _set_min_isr_of_transactions(
    client: KafkaClient, cluster: Cluster, inputs: ReassignmentInputs, broker_count: int, scaled: ScalingStep
) -> None:
    """Sets min.insync.replicas of `__transaction_state` for this number of brokers: the topic has
    had a value of its own since its creation. `__consumer_offsets` has none and follows the
    brokers' default.
    """
    if TRANSACTION_STATE_TOPIC not in {it.topic for it in inputs.partitions}:
        return
    min_isr = (replication_defaults(broker_count) | cluster.config)[TRANSACTION_STATE_MIN_ISR]
    own = (await configs.describe_topic_overrides(client, [TRANSACTION_STATE_TOPIC]))[TRANSACTION_STATE_TOPIC]
    if own.get(configs.MIN_ISR) == min_isr:
        return
    await configs.alter_topic_config(client, TRANSACTION_STATE_TOPIC, {configs.MIN_ISR: min_isr}, ())
    message = (
        f"{configs.MIN_ISR} of {TRANSACTION_STATE_TOPIC} is now {min_isr}, with {format_count(broker_count, 'broker')}"
    )
    scaled.events.append(ClusterEvent("MinInSyncReplicasChanged", message))


async def unregister_removed_brokers(client: KafkaClient, brokers: BrokerSet, scaled: ScalingStep) -> None:
    """Unregisters brokers that were removed: they do not exist and are fenced. One that holds
    replicas, of topics that were created while it was stopping, is brought back until they are
    moved off it."""
    registered = (await describe_cluster(client, include_fenced=True)).brokers
    removed = [it.id for it in registered if it.is_fenced and it.id > scaled.count and it.id not in brokers.brokers]
    if not removed:
        return
    partitions = (await read_reassignment_inputs(client)).partitions
    holding = {broker for it in partitions for broker in it.replicas}
    for broker in removed:
        if broker in holding:
            scaled.count = max(scaled.count, broker)
            message = f"starting broker {broker} again: it got replicas while it was being removed"
            scaled.events.append(ClusterEvent("RemovedBrokerNeeded", message))
        else:
            await unregister_broker(client, broker)
            scaled.events.append(ClusterEvent("BrokerUnregistered", f"unregistered broker {broker}, which was removed"))
