"""A fault that delivers a batch of transaction version 1 after its transaction has ended in the
partition.

Each connection on which the producer sends the batch is stalled, so the producer gives it up and
aborts. Its epoch is the same as before the end, and the sequence of the batch is the next one. A
partition that accepts the batch has an open transaction that the coordinator does not know: the
producer's next transaction ends it, perhaps with a commit, or nothing does.
"""

from ottla_broker.transactions.transaction_metadata import EXPIRABLE_STATES
from tests.sim import triggers
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import running_brokers
from tests.sim.network import Direction
from tests.sim.transaction_packets import TRANSACTIONAL_HOSTS, SentBatch, read_transactional_batch

ENDS_WITHIN_S = 12.0  # a delivery timeout and the time for the markers


async def deliver_batch_late(cluster: SimulatedCluster) -> None:
    """Returns when a stalled batch was delivered, or none was sent. The batch comes too early if
    its transaction does not end in time.
    """
    late: list[SentBatch] = []

    def has_batch(direction: Direction, piece: bytes) -> bool:
        batch = read_transactional_batch(piece) if direction[0].startswith(TRANSACTIONAL_HOSTS) else None
        if batch is not None and not late:
            late.append(batch)
        return batch is not None and batch == late[0]

    with cluster.network.connections_stalled(has_batch):
        if not await triggers.wait_until(lambda: bool(late)):
            return
        batch = late[0]
        cluster.trace.add_line(f"stalls {batch}")
        has_ended = await triggers.wait_until(
            lambda: has_no_transaction(cluster, batch.transactional_id), within_s=ENDS_WITHIN_S
        )
        cluster.trace.add_line(f"delivers it {'after' if has_ended else 'before'} the end of its transaction")


def has_no_transaction(cluster: SimulatedCluster, transactional_id: str) -> bool:
    """True if a coordinator has the id with no open transaction."""
    entries = (
        shard.entries.get(transactional_id)
        for _, broker in running_brokers(cluster)
        for shard in broker.transactions.coordinator._shards.values()
    )
    return any(
        entry is not None and entry.metadata is not None and entry.metadata.state in EXPIRABLE_STATES
        for entry in entries
    )
