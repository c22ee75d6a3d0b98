"""A fault that delivers the marker of a transaction while its producer's next transaction is open
in the same partition.

The coordinator's connection to the partition's leader is stalled, so that the marker is sent again
on another connection. Either the same coordinator sends it, because its end of the connection is
reset as by a firewall that has forgotten the connection, or the next coordinator does, because the
first is killed. A partition that accepts the late marker ends a part of the next transaction,
perhaps otherwise than the rest of it will end.
"""

from ottla_broker.log.producer_state import EPOCH_BUMP_VERSION
from tests.sim import triggers
from tests.sim.cluster import SimulatedCluster
from tests.sim.network import Direction
from tests.sim.transaction_packets import SentMarker, find_sent_markers, read_markers

NEXT_TRANSACTION_WITHIN_S = 10.0  # a session timeout and a takeover


async def deliver_marker_late(cluster: SimulatedCluster, *, kills: bool) -> None:
    """Returns when stalled markers were delivered, or none was sent. `kills`: the coordinator is
    killed. In transaction version 1 only the coordinator's epoch tells a late marker from that of
    the next transaction, so without `kills` only markers of transaction version 2 are late.
    """
    nodes = {node.host: node for node in cluster}
    late: list[SentMarker] = []

    def has_markers(direction: Direction, piece: bytes) -> bool:
        markers = () if late else read_markers(piece)
        if not markers or not (kills or all(one.transaction_version >= EPOCH_BUMP_VERSION for one in markers)):
            return False
        late.extend(find_sent_markers(nodes[direction[1]], markers))
        return bool(late)

    with cluster.network.connections_stalled(has_markers) as stalled:
        if not await triggers.wait_until(lambda: bool(stalled)):
            return
        coordinator = nodes[stalled[0].address[0]]
        cluster.trace.add_line(f"stalls markers of {coordinator.host} to {late[0].leader.host}")
        if not kills:
            stalled[0].receive_reset()
        elif coordinator.is_running:
            coordinator.kill()
        is_open = await triggers.wait_until(
            lambda: any(one.has_next_transaction() for one in late), within_s=NEXT_TRANSACTION_WITHIN_S
        )
        cluster.trace.add_line(f"delivers them {'in' if is_open else 'without'} a next transaction")
    if kills and not coordinator.is_running:
        coordinator.start()
