"""Faults that hit transactions at the moments that matter: before a decision is replicated, between
a decision and its markers, before a marker is replicated, and when batches or markers come late.
Each fault returns when it is repaired.
"""

from collections.abc import Awaitable, Callable
from random import Random

from ottla_broker.broker import Broker
from ottla_broker.replication.partition import Partition
from ottla_broker.transactions.transaction_metadata import DECIDED_STATES, TransactionState
from ottla_broker.transactions.transaction_records import TRANSACTION_STATE_TOPIC
from ottla_broker.transactions.transaction_shard import TransactionEntry
from tests.sim import triggers
from tests.sim.broker_faults import sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.network import Direction
from tests.sim.triggered_faults import api_key

PRODUCE, FETCH, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 0, 1, 27, 28
LATE_BATCH_S = (0.5, 6.0)
LATE_MARKER_S = (2.0, 8.0)
FETCH_DELAY_S = 3.0
TRANSACTIONAL_HOSTS = ("txn-", "worker-")


def coordinates_transactions(partition: Partition) -> bool:
    return partition.is_leader and partition.topic == TRANSACTION_STATE_TOPIC


def has_unreplicated_marker(partition: Partition) -> bool:
    return partition.is_leader and bool(partition.log.producers._unreplicated_txns)


def last_unreplicated_marker(partition: Partition) -> int:
    return max(partition.log.producers._unreplicated_txns.values())


def leads_records(partition: Partition) -> bool:
    return partition.is_leader and not partition.topic.startswith("__")


def is_decided(entry: TransactionEntry) -> bool:
    """True if the transaction has an end that is not completed."""
    return entry.metadata is not None and entry.metadata.state in DECIDED_STATES


def is_deciding(entry: TransactionEntry) -> bool:
    """True while the end of a transaction is replicated, or another change of it."""
    return entry.pending and entry.metadata is not None and entry.metadata.state is TransactionState.ongoing


def has_transaction(broker: Broker | None, which: Callable[[TransactionEntry], bool]) -> bool:
    return broker is not None and any(
        which(entry) for shard in broker.transactions.coordinator._shards.values() for entry in shard.entries.values()
    )


class TransactionFaults:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    @property
    def weighted(self) -> list[tuple[int, str, Callable[[SimulatedBroker], Awaitable[None]]]]:
        """For the nemesis."""
        faults: list[tuple[int, str, Callable[[SimulatedBroker], Awaitable[None]]]] = [
            (8, "late transactional batches", self.batches_late)
        ]
        if len(self._cluster.brokers) > 1:
            faults += [
                (8, "coordinator killed before markers", self.coordinator_killed_before_markers),
                (8, "coordinator killed while deciding", self.coordinator_killed_while_deciding),
                (8, "leader killed with a new marker", self.leader_killed_with_new_marker),
            ]
        return faults

    async def batches_late(self, _: SimulatedBroker) -> None:
        """Transactional batches, and commits of offsets, arrive when their producer has given them
        up."""

        def is_transactional(direction: Direction, piece: bytes) -> bool:
            return direction[0].startswith(TRANSACTIONAL_HOSTS) and api_key(piece) in (PRODUCE, TXN_OFFSET_COMMIT)

        late_s = self._random.uniform(*LATE_BATCH_S)
        self._trace(f"delays transactional batches by {late_s:.1f} s")
        with self._cluster.network.packets_delayed(is_transactional, late_s):
            await sleep_random(self._random, 0.2, 2)

    async def coordinator_killed_before_markers(self, reserved: SimulatedBroker) -> None:
        """Kill a coordinator whose markers are on their way. They arrive when its successor has
        sent its own, and the next transactions have begun."""
        node = self._choose(reserved, coordinates_transactions)

        def is_marker(direction: Direction, piece: bytes) -> bool:
            return direction[0] == node.host and api_key(piece) == WRITE_TXN_MARKERS

        late_s = self._random.uniform(*LATE_MARKER_S)
        self._trace(f"delays markers of {node.host} by {late_s:.1f} s, and will kill it")
        with self._cluster.network.packets_delayed(is_marker, late_s):
            await triggers.wait_until(lambda: has_transaction(node.broker, is_decided))
            await sleep_random(self._random, 0.01, 0.5)
            self._kill(node)
        await self._start_later(node)

    async def coordinator_killed_while_deciding(self, reserved: SimulatedBroker) -> None:
        """Kill a coordinator while the followers lack its last decision."""
        node = self._choose(reserved, coordinates_transactions)

        def is_moment() -> bool:
            return has_transaction(node.broker, is_deciding) and self._has_more_than_followers(
                node, coordinates_transactions, lambda partition: partition.log.end - 1
            )

        await self._kill_ahead_of_followers(node, is_moment)

    async def leader_killed_with_new_marker(self, reserved: SimulatedBroker) -> None:
        """Kill the leader of a partition while the followers lack a marker."""
        node = self._choose(reserved, leads_records)
        await self._kill_ahead_of_followers(
            node, lambda: self._has_more_than_followers(node, has_unreplicated_marker, last_unreplicated_marker)
        )

    async def _kill_ahead_of_followers(self, node: SimulatedBroker, is_moment: Callable[[], bool]) -> None:
        others = [other.host for other in self._cluster if other is not node]

        def is_fetch(direction: Direction, piece: bytes) -> bool:
            return direction[0] in others and direction[1] == node.host and api_key(piece) == FETCH

        self._trace(f"delays the followers' fetches from {node.host}, and will kill it")
        with self._cluster.network.packets_delayed(is_fetch, FETCH_DELAY_S):
            await triggers.wait_until(is_moment)
            await sleep_random(self._random, 0.02, 0.5)
            self._kill(node)
        await self._start_later(node)

    def _has_more_than_followers(
        self, node: SimulatedBroker, which: triggers.PartitionPredicate, offset_of: Callable[[Partition], int]
    ) -> bool:
        """True if the node leads such a partition, and no other broker has the record at
        `offset_of`."""
        for partition in () if node.broker is None else filter(which, node.broker.partitions):
            others = [other.broker for other in self._cluster if other is not node and other.broker is not None]
            replicas = [broker.partitions.get(partition.topic, partition.partition) for broker in others]
            if all(one is None or one.log.end <= offset_of(partition) for one in replicas):
                return True
        return False

    def _kill(self, node: SimulatedBroker) -> None:
        if node.is_running:
            node.kill()

    async def _start_later(self, node: SimulatedBroker) -> None:
        await sleep_random(self._random, 0.5, 4)
        if not node.is_running:
            node.start()

    def _choose(self, reserved: SimulatedBroker, which: triggers.PartitionPredicate) -> SimulatedBroker:
        found = triggers.brokers_with_partition(self._cluster, which)
        return self._random.choice(found) if found and reserved not in found else reserved

    def _trace(self, what: str) -> None:
        self._cluster.trace.add_line(what)
