"""Moments in which it matters what goes, and which last for milliseconds: whoever waits for one hits what chance would seldom hit."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.partition import Partition
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.standing import metadata_log, newest_image, running

LOOK_S: Final = 0.001
PATIENCE_S: Final = 5.0
NEW_MS: Final = 500
OFFSETS: Final = "__consumer_offsets"

Of = Callable[[Partition], bool]


def letting_in(partition: Partition) -> bool:
    """Its leader has asked the controller for an ISR with somebody who is not in the present one."""
    pending = partition.pending_isr_change
    return partition.is_leader and pending is not None and not set(pending.isr) <= set(partition.registration.isr)


def newcomers(partition: Partition) -> list[int]:
    """Whom its leader wants to let in, in the order in which they would lead."""
    wanted = () if partition.pending_isr_change is None or not partition.is_leader else partition.pending_isr_change.isr
    return [one for one in partition.registration.replicas if one in wanted and one not in partition.registration.isr]


def letting_in_its_heir(partition: Partition) -> bool:
    """As `letting_in`: and if its leader died, one of those who come would lead."""
    others = [
        one
        for one in partition.registration.replicas
        if one != partition.registration.leader and (one in partition.registration.isr or one in newcomers(partition))
    ]
    return letting_in(partition) and others[0] in newcomers(partition)


def unsynced(partition: Partition) -> bool:
    """It has what is not on the device yet, and somebody waits for that."""
    return partition.acks_wait_for_sync and partition.log.flush.flushed_offset < partition.log.end


def waited_for(partition: Partition) -> bool:
    """Its leader has what followers have not."""
    return partition.is_leader and partition.log.high_watermark < partition.log.end


def new(partition: Partition) -> bool:
    """Its folder was made a moment ago, and there are records in it."""
    log = partition.log
    return (
        log.end > 0
        and log.storage.runtime.now_ms() - log.segments.active.created_ms < NEW_MS
        and log.segments.active.base == 0
    )


def coordinates(partition: Partition) -> bool:
    return partition.is_leader and partition.topic == OFFSETS


def behind_its_heirs(cluster: SimulatedCluster, node: SimulatedBroker) -> bool:
    """It keeps groups that others keep by now, too, and knows less of what they have committed than those."""
    image = newest_image(cluster)
    offsets = None if image is None else image.topics.get(OFFSETS)
    if offsets is None or node.broker is None:
        return False
    for state in offsets.partitions.values():
        old, heir = node.broker.partitions.get(OFFSETS, state.partition), cluster.brokers.get(state.leader)
        if old is None or not old.is_leader or heir is None or heir is node or heir.broker is None:
            continue
        new = heir.broker.partitions.get(OFFSETS, state.partition)
        if (
            new is not None
            and new.is_leader
            and new.log.high_watermark > max(new.leader.epoch_start_offset, old.log.high_watermark)
        ):
            return True
    return False


def trusted_too_early(cluster: SimulatedCluster, leader: Partition, node: SimulatedBroker) -> bool:
    """The metadata say that this broker is in sync, and it has not what the leader takes for committed. Never, if all rules hold."""
    state = _known(cluster, leader)
    hosted = None if node.broker is None else node.broker.partitions.get(leader.topic, leader.partition)
    return (
        state is not None
        and node.node_id in state.isr
        and hosted is not None
        and hosted.log.end < leader.log.high_watermark
    )


def led_by(cluster: SimulatedCluster, partition: Partition, node: SimulatedBroker) -> bool:
    """By the newest metadata."""
    state = _known(cluster, partition)
    return state is not None and state.leader == node.node_id


def _known(cluster: SimulatedCluster, partition: Partition) -> PartitionRecord | None:
    image = newest_image(cluster)
    topic = None if image is None else image.topics.get(partition.topic)
    return None if topic is None else topic.partitions.get(partition.partition)


def metadata_unsynced(broker: Broker) -> bool:
    log = metadata_log(broker)
    return log is not None and log.flush.flushed_offset < log.end


async def seen(
    cluster: SimulatedCluster, random: Random, found: Callable[[], list[SimulatedBroker]], within_s: float = PATIENCE_S
) -> SimulatedBroker | None:
    """One of those that `found` finds, as soon as there is one; None when there is none in time."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while loop.time() < until_s:
        if nodes := found():
            return random.choice(nodes)
        await asyncio.sleep(LOOK_S)
    return None


async def true(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
    """As soon as it is; False when it is not in time."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while loop.time() < until_s:
        if holds():
            return True
        await asyncio.sleep(LOOK_S)
    return False


def with_partition(cluster: SimulatedCluster, of: Of) -> list[SimulatedBroker]:
    """Who runs, and has such a partition."""
    return [node for node, broker in running(cluster) if any(map(of, broker.partitions))]


def with_broker(cluster: SimulatedCluster, of: Callable[[Broker], bool]) -> list[SimulatedBroker]:
    return [node for node, broker in running(cluster) if of(broker)]
