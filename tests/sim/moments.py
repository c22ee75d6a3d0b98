"""Moments in which it matters what goes, and which last for milliseconds: whoever waits for one hits what chance would seldom hit."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.replication.partition import Partition
from tests.sim.cluster import Cluster, SimulatedBroker
from tests.sim.standing import metadata_log, running

LOOK_S: Final = 0.001
PATIENCE_S: Final = 5.0
NEW_MS: Final = 500
OFFSETS: Final = "__consumer_offsets"

Of = Callable[[Partition], bool]


def letting_in(partition: Partition) -> bool:
    """Its leader has asked the controller for an ISR with somebody who is not in the present one."""
    pending = partition.pending
    return partition.leads and pending is not None and not set(pending.isr) <= set(partition.state.isr)


def unsynced(partition: Partition) -> bool:
    """It has what is not on the device yet, and somebody waits for that."""
    return partition.acks_are_synced and partition.log.flush.flushed < partition.log.end


def waited_for(partition: Partition) -> bool:
    """Its leader has what followers have not."""
    return partition.leads and partition.log.high_watermark < partition.log.end


def new(partition: Partition) -> bool:
    """Its folder was made a moment ago, and there are records in it."""
    log = partition.log
    return (
        log.end > 0
        and log.storage.runtime.now_ms() - log.segments.active.created_ms < NEW_MS
        and log.segments.active.base == 0
    )


def coordinates(partition: Partition) -> bool:
    return partition.leads and partition.topic == OFFSETS


def metadata_unsynced(broker: Broker) -> bool:
    log = metadata_log(broker)
    return log is not None and log.flush.flushed < log.end


async def seen(
    cluster: Cluster, random: Random, found: Callable[[], list[SimulatedBroker]], within_s: float = PATIENCE_S
) -> SimulatedBroker | None:
    """One of those that `found` finds, as soon as there is one; None when there is none in time."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while loop.time() < until_s:
        if nodes := found():
            return random.choice(nodes)
        await asyncio.sleep(LOOK_S)
    return None


def with_partition(cluster: Cluster, of: Of) -> list[SimulatedBroker]:
    """Who runs, and has such a partition."""
    return [node for node, broker in running(cluster) if any(map(of, broker.partitions))]


def with_broker(cluster: Cluster, of: Callable[[Broker], bool]) -> list[SimulatedBroker]:
    return [node for node, broker in running(cluster) if of(broker)]
