"""Faults that hit transactions at the moments that matter: before a decision is replicated, between
a decision and its markers, before a marker is replicated, and when batches or markers come late.
Each fault returns when it is repaired.
"""

from collections.abc import Callable
from random import Random

from ottla_broker.broker import Broker
from ottla_broker.coordination.records import TRANSACTION_STATE_TOPIC
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.replication.partition import Partition
from ottla_broker.transactions.transaction_metadata import DECIDED_STATES, TransactionState
from ottla_broker.transactions.transaction_shard import TransactionEntry
from ottla_broker.wire.api_keys import ApiKey
from tests.sim import triggers
from tests.sim.broker_faults import sleep_random
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.late_batches import deliver_batch_late
from tests.sim.late_markers import deliver_marker_late
from tests.sim.nemesis import WeightedFault
from tests.sim.network import Direction, PacketFilter
from tests.sim.plan import LATE_BATCH, LATE_MARKER, NEW_MARKER_LOST, Plan
from tests.sim.transaction_packets import TRANSACTIONAL_HOSTS
from tests.sim.triggered_faults import api_key
from tests.sim.unreplicated_markers import kill_leader_with_unreplicated_marker

LATE_BATCH_S = (0.5, 6.0)
LATE_MARKER_S = (2.0, 8.0)
FETCH_DELAY_S = 3.0
LATE_MARKERS = 4


def coordinates_transactions(partition: Partition) -> bool:
    return partition.is_leader and partition.topic == TRANSACTION_STATE_TOPIC


def is_decided(entry: TransactionEntry) -> bool:
    """True if the end of the transaction is decided and not completed."""
    return entry.metadata is not None and entry.metadata.state in DECIDED_STATES


def is_deciding(entry: TransactionEntry) -> bool:
    """True while a change of an ongoing transaction, such as its end, is being replicated."""
    return entry.pending and entry.metadata is not None and entry.metadata.state is TransactionState.ongoing


def has_transaction(broker: Broker | None, which: Callable[[TransactionEntry], bool]) -> bool:
    return broker is not None and any(
        which(entry) for shard in broker.transactions.coordinator._shards.values() for entry in shard.entries.values()
    )


class TransactionFaults:
    def __init__(self, cluster: SimulatedCluster, random: Random, plan: Plan) -> None:
        self._cluster = cluster
        self._random = random
        self._plan = plan

    @property
    def weighted_faults(self) -> list[WeightedFault]:
        """The faults from which the nemesis draws, beside its own."""
        faults: list[WeightedFault] = [WeightedFault(12, "late transactional batches", self.batches_late)]
        if len(self._cluster.brokers) > 1:
            faults += [
                WeightedFault(12, "coordinator killed before markers", self.coordinator_killed_before_markers),
                WeightedFault(12, "coordinator killed while deciding", self.coordinator_killed_while_deciding),
                WeightedFault(16, NEW_MARKER_LOST, self.leader_killed_with_new_marker),
            ]
        frequent = {
            LATE_MARKER: self.marker_late,
            LATE_BATCH: self.batch_late,
            NEW_MARKER_LOST: self.leader_killed_with_new_marker,
        }
        if (name := self._plan.frequent_fault) in frequent:
            faults.append(WeightedFault(40, name, frequent[name]))
        return faults

    async def batches_late(self, _: SimulatedBroker) -> None:
        """Transactional batches, and commits of offsets, arrive when their producer has given them
        up."""

        def is_transactional(direction: Direction, piece: bytes) -> bool:
            return direction[0].startswith(TRANSACTIONAL_HOSTS) and api_key(piece) in (
                ApiKey.PRODUCE,
                ApiKey.TXN_OFFSET_COMMIT,
            )

        late_s = self._random.uniform(*LATE_BATCH_S)
        self._cluster.trace.add_line(f"delays transactional batches by {late_s:.1f} s")
        with self._cluster.network.packets_delayed(is_transactional, late_s):
            await sleep_random(self._random, 0.2, 2)

    async def marker_late(self, _: SimulatedBroker) -> None:
        """Delays one marker of a coordinator that is killed, or several of one that goes on."""
        kills = self._random.randrange(3) == 0
        for _number in range(1 if kills else LATE_MARKERS):
            await deliver_marker_late(self._cluster, kills=kills)

    async def coordinator_killed_before_markers(self, _: SimulatedBroker) -> None:
        """Kills a coordinator whose markers are on their way. They arrive when its successor has
        sent its own, and the next transactions have begun."""

        def is_marker(_: Direction, piece: bytes) -> bool:
            return api_key(piece) == ApiKey.WRITE_TXN_MARKERS

        late_s = self._random.uniform(*LATE_MARKER_S)
        await self._kill_at_moment(is_marker, late_s, lambda node: has_transaction(node.broker, is_decided))

    async def coordinator_killed_while_deciding(self, _: SimulatedBroker) -> None:
        """Kills a coordinator while the followers lack its last decision."""
        await self._kill_at_moment(
            self._is_followers_fetch,
            FETCH_DELAY_S,
            lambda node: (
                has_transaction(node.broker, is_deciding)
                and self._has_more_than_followers(node, coordinates_transactions, lambda log: log.end - 1)
            ),
        )

    async def leader_killed_with_new_marker(self, _: SimulatedBroker) -> None:
        await kill_leader_with_unreplicated_marker(self._cluster)

    async def batch_late(self, _: SimulatedBroker) -> None:
        await deliver_batch_late(self._cluster)

    def _is_followers_fetch(self, direction: Direction, piece: bytes) -> bool:
        return api_key(piece) == ApiKey.FETCH and direction[0] in {node.host for node in self._cluster}

    async def _kill_at_moment(
        self, delayed: PacketFilter, delay_s: float, is_moment: Callable[[SimulatedBroker], bool]
    ) -> None:
        """Delays these packets until `is_moment` is True for a broker, and kills that broker."""
        self._cluster.trace.add_line(f"delays packets by {delay_s:.1f} s until a broker is killed")

        def found() -> list[SimulatedBroker]:
            return [node for node in self._cluster if node.is_serving and is_moment(node)]

        with self._cluster.network.packets_delayed(delayed, delay_s):
            node = await triggers.wait_for_broker(self._cluster, self._random, found)
            await sleep_random(self._random, 0.01, 0.5)
            if node is not None and node.is_running:
                node.kill()
        await sleep_random(self._random, 0.5, 4)
        if node is not None and not node.is_running:
            node.start()

    def _has_more_than_followers(
        self, node: SimulatedBroker, which: triggers.PartitionPredicate, offset_of: Callable[[PartitionLog], int]
    ) -> bool:
        """True if the node leads such a partition, and no other broker has the record at
        `offset_of`."""
        for partition in () if node.broker is None else filter(which, node.broker.partitions):
            others = [other.broker for other in self._cluster if other is not node and other.broker is not None]
            replicas = [broker.partitions.get(partition.topic, partition.partition) for broker in others]
            if all(one is None or one.log.end <= offset_of(partition.log) for one in replicas):
                return True
        return False
