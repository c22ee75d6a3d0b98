"""A fault that delivers the marker of a transaction while its producer's next transaction is open
in the same partition.

The coordinator's connection to the partition's leader is stalled, so that the marker is sent again
on another connection. Either the same coordinator sends it, whose end of the connection is reset
(firewalls that have forgotten a connection do so), or the next one, because the first is killed. A
partition that accepts the late marker ends a part of the next transaction, perhaps otherwise than
the rest of it will end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

from ottla_broker.log.producer_state import EPOCH_BUMP_VERSION, NO_OFFSET
from ottla_broker.transactions.transaction_metadata import TxnPartition
from ottla_broker.wire.codec import read_request
from ottla_broker.wire.request_header import read_request_header
from tests.sim import triggers
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.network import Direction
from tests.sim.triggered_faults import api_key

WRITE_TXN_MARKERS = 27
SIZE_BYTES = 4
NEXT_TRANSACTION_WITHIN_S = 10.0  # a session, a takeover


@dataclass(frozen=True, slots=True)
class LateMarker:
    """A marker on its way to one partition. `first_offset`: that of the transaction that it ends,
    `NO_OFFSET` if the leader has no record of it."""

    leader: SimulatedBroker
    at: TxnPartition
    producer_id: int
    first_offset: int

    def has_next_transaction(self) -> bool:
        """True if the producer's next transaction is open in the partition."""
        return find_open_transaction(self.leader, self.at, self.producer_id) > self.first_offset


def find_open_transaction(leader: SimulatedBroker, at: TxnPartition, producer_id: int) -> int:
    """First offset of the producer's open transaction in the partition, `NO_OFFSET` if there is
    none."""
    partition = None if leader.broker is None else leader.broker.partitions.get(*at)
    producer = None if partition is None else partition.log.producers.get(producer_id)
    return NO_OFFSET if producer is None else producer.current_txn_first_offset


def read_markers(piece: bytes) -> Sequence[WritableTxnMarker]:
    """The markers in a segment that is a whole request to write some."""
    if api_key(piece) != WRITE_TXN_MARKERS or len(piece) != SIZE_BYTES + int.from_bytes(piece[:SIZE_BYTES]):
        return ()
    frame = piece[SIZE_BYTES:]
    request: WriteTxnMarkersRequest = read_request(frame, read_request_header(frame), WriteTxnMarkersRequest)
    return request.markers


async def deliver_marker_late(cluster: SimulatedCluster, *, kills: bool) -> None:
    """Returns when a marker was delivered late, or none was sent. `kills`: the coordinator is
    killed. In protocol 1 only the coordinator's epoch tells a late marker from that of the next
    transaction, so without `kills` only markers of protocol 2 are late.
    """
    nodes = {node.host: node for node in cluster}
    late: list[LateMarker] = []

    def has_markers(direction: Direction, piece: bytes) -> bool:
        markers = () if late else read_markers(piece)
        if not markers or not (kills or all(one.transaction_version >= EPOCH_BUMP_VERSION for one in markers)):
            return False
        late.extend(find_late_markers(nodes[direction[1]], markers))
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


def find_late_markers(leader: SimulatedBroker, markers: Sequence[WritableTxnMarker]) -> Iterator[LateMarker]:
    for marker in markers:
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                at, producer_id = TxnPartition(topic.name, int(partition)), int(marker.producer_id)
                yield LateMarker(leader, at, producer_id, find_open_transaction(leader, at, producer_id))
