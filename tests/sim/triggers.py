"""States in which a fault is likely to show a defect, and functions that wait for them. Many last
only milliseconds, so faults at random times would seldom hit them.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.partition import Partition
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import metadata_log, newest_image, running_brokers

POLL_S: Final = 0.001
WAIT_S: Final = 5.0
NEW_WITHIN_MS: Final = 500
OFFSETS: Final = "__consumer_offsets"
COORDINATORS_TOPICS: Final = (OFFSETS, "__transaction_state")

PartitionPredicate = Callable[[Partition], bool]


def proposes_new_isr_member(partition: Partition) -> bool:
    """True if the leader has proposed an ISR with a new member."""
    pending = partition.pending_isr_change
    return partition.is_leader and pending is not None and not set(pending.isr) <= set(partition.registration.isr)


def proposed_isr_members(partition: Partition) -> list[int]:
    """New ISR members that the leader has proposed, in the order in which they would be elected.
    Empty if this replica is not the leader or has no proposal pending.
    """
    wanted = () if partition.pending_isr_change is None or not partition.is_leader else partition.pending_isr_change.isr
    return [one for one in partition.registration.replicas if one in wanted and one not in partition.registration.isr]


def proposes_next_leader(partition: Partition) -> bool:
    """True if the leader has proposed a new member that would be elected if the leader failed."""
    if not proposes_new_isr_member(partition):
        return False
    registration, proposed = partition.registration, proposed_isr_members(partition)
    next_leader = next(
        one
        for one in registration.replicas
        if one != registration.leader and (one in registration.isr or one in proposed)
    )
    return next_leader in proposed


def has_unsynced_acks(partition: Partition) -> bool:
    """True if acknowledgements wait for a sync."""
    return partition.acks_wait_for_sync and partition.log.flush.flushed_offset < partition.log.end


def followers_lag(partition: Partition) -> bool:
    """True if this replica leads and has records above its high watermark, which in-sync followers
    may lack.
    """
    return partition.is_leader and partition.log.high_watermark < partition.log.end


def is_new_with_records(partition: Partition) -> bool:
    """True if the folder was created just now and has records."""
    log = partition.log
    return (
        log.end > 0
        and log.storage.runtime.now_ms() - log.segments.active.created_ms < NEW_WITHIN_MS
        and log.segments.active.base == 0
    )


def is_coordinator(partition: Partition) -> bool:
    return partition.is_leader and partition.topic in COORDINATORS_TOPICS


def is_stale_coordinator(cluster: SimulatedCluster, node: SimulatedBroker) -> bool:
    """True if this broker still leads a partition of __consumer_offsets whose new leader has newer
    committed records.
    """
    image = newest_image(cluster)
    offsets = None if image is None else image.topics.get(OFFSETS)
    if offsets is None or node.broker is None:
        return False
    for state in offsets.partitions.values():
        old, successor = node.broker.partitions.get(OFFSETS, state.partition), cluster.brokers.get(state.leader)
        if old is None or not old.is_leader or successor is None or successor is node or successor.broker is None:
            continue
        new = successor.broker.partitions.get(OFFSETS, state.partition)
        if (
            new is not None
            and new.is_leader
            and new.log.high_watermark > max(new.leader.epoch_start_offset, old.log.high_watermark)
        ):
            return True
    return False


def is_isr_member_without_committed_records(
    cluster: SimulatedCluster, leader: Partition, node: SimulatedBroker
) -> bool:
    """True if the metadata have this broker in the ISR and it lacks committed records. Never, if
    all rules hold.
    """
    state = _newest_record(cluster, leader)
    hosted = None if node.broker is None else node.broker.partitions.get(leader.topic, leader.partition)
    return (
        state is not None
        and node.node_id in state.isr
        and hosted is not None
        and hosted.log.end < leader.log.high_watermark
    )


def is_led_by(cluster: SimulatedCluster, partition: Partition, node: SimulatedBroker) -> bool:
    """True if this broker leads the partition according to the newest metadata."""
    state = _newest_record(cluster, partition)
    return state is not None and state.leader == node.node_id


def _newest_record(cluster: SimulatedCluster, partition: Partition) -> PartitionRecord | None:
    image = newest_image(cluster)
    topic = None if image is None else image.topics.get(partition.topic)
    return None if topic is None else topic.partitions.get(partition.partition)


def has_unsynced_metadata(broker: Broker) -> bool:
    log = metadata_log(broker)
    return log is not None and log.flush.flushed_offset < log.end


async def wait_for_broker(
    cluster: SimulatedCluster, random: Random, candidates: Callable[[], list[SimulatedBroker]], within_s: float = WAIT_S
) -> SimulatedBroker | None:
    """A random broker of the list that `candidates` returns, as soon as that is not empty. None if
    it is still empty after `within_s`.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while loop.time() < until_s:
        if nodes := candidates():
            return random.choice(nodes)
        await asyncio.sleep(POLL_S)
    return None


async def wait_until(holds: Callable[[], bool], within_s: float = WAIT_S) -> bool:
    """Waits until `holds` returns True; False if it does not in time."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while loop.time() < until_s:
        if holds():
            return True
        await asyncio.sleep(POLL_S)
    return False


def brokers_with_partition(cluster: SimulatedCluster, of: PartitionPredicate) -> list[SimulatedBroker]:
    """Running brokers that host a matching partition."""
    return [node for node, broker in running_brokers(cluster) if any(map(of, broker.partitions))]


def brokers_where(cluster: SimulatedCluster, of: Callable[[Broker], bool]) -> list[SimulatedBroker]:
    return [node for node, broker in running_brokers(cluster) if of(broker)]
