"""A fault that kills the leader of a partition while it alone has the end marker of a transaction.

The marker is held up until no follower's fetch waits at the leader, and fetches that are sent from
then on arrive after the kill. What the leader does with the marker is lost with the leader, and the
transaction is open at the next leader: the coordinator must repeat the marker, and readers must not
have passed the transaction. Markers to the next leader are late, so that requests of readers reach
it first.
"""

import asyncio

from ottla_broker.coordination.records import OFFSETS_TOPIC
from ottla_broker.log.producer_state import NO_OFFSET
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.transactions.transaction_metadata import TxnPartition
from ottla_broker.wire.api_keys import ApiKey
from tests.sim import triggers
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import newest_image
from tests.sim.network import Direction
from tests.sim.transaction_packets import SentMarker, find_sent_markers, read_markers
from tests.sim.triggered_faults import api_key

FETCH_WAIT_S = 0.52  # the longest replica.fetch.wait.max.ms, and the way back
FETCH_DELAY_S = 3.0
READERS_PAUSE_S = 0.4  # in which readers ask for each partition
MARKER_DELAY_S = 2.0
ELECTED_WITHIN_S = 8.0


async def kill_leader_with_unreplicated_marker(cluster: SimulatedCluster) -> None:
    """Returns when the leader runs again, or if no marker was sent."""
    nodes = {node.host: node for node in cluster}
    sent: list[SentMarker] = []

    def has_marker(direction: Direction, piece: bytes) -> bool:
        if sent or not (markers := read_markers(piece)):
            return False
        found = find_sent_markers(nodes[direction[1]], markers)
        sent.extend(one for one in found if one.at.topic != OFFSETS_TOPIC and one.first_offset != NO_OFFSET)
        return bool(sent)

    def is_fetch(direction: Direction, piece: bytes) -> bool:
        return (
            bool(sent)
            and direction[1] == sent[0].leader.host
            and direction[0] in nodes
            and api_key(piece) == ApiKey.FETCH
        )

    def is_repeated_marker(direction: Direction, piece: bytes) -> bool:
        return direction[1] != sent[0].leader.host and api_key(piece) == ApiKey.WRITE_TXN_MARKERS

    with cluster.network.packets_delayed(is_fetch, FETCH_DELAY_S):
        with cluster.network.connections_stalled(has_marker):
            if not await triggers.wait_until(lambda: bool(sent)):
                return
            await asyncio.sleep(FETCH_WAIT_S)
        leader, at = sent[0].leader, sent[0].at
        await asyncio.sleep(READERS_PAUSE_S)
        cluster.trace.add_line(f"kills {leader.host} with a new marker in {at}")
        if leader.is_running:
            leader.kill()
    with cluster.network.packets_delayed(is_repeated_marker, MARKER_DELAY_S):
        if await triggers.wait_until(lambda: has_other_leader(cluster, at, leader), within_s=ELECTED_WITHIN_S):
            await asyncio.sleep(MARKER_DELAY_S)
    if not leader.is_running:
        leader.start()


def has_other_leader(cluster: SimulatedCluster, at: TxnPartition, former: SimulatedBroker) -> bool:
    image = newest_image(cluster)
    topic = None if image is None else image.topics.get(at.topic)
    state = None if topic is None else topic.partitions.get(at.partition)
    return state is not None and state.leader not in (former.node_id, NO_LEADER)
