"""Invariants of the metadata log's quorum while brokers run.

They are checked many times a second, so that a violation is found at once and not only when clients
miss acknowledged records.
"""

import asyncio
from uuid import UUID

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.cluster_state import active_controllers, metadata_log, running_brokers
from tests.sim.reader import committed_batches
from tests.sim.trace import Trace

CHECK_S = 0.05
CHECK_QUORUM_SLACK_S = 0.5

Process = tuple[int, int]  # broker, number of its start


class QuorumMonitor:
    """Monitors one cluster: it has one cluster id, one leader in each epoch, and keeps its
    committed records.

    A new leader has all records that any broker has seen committed, and a replaced leader resigns
    soon.
    """

    def __init__(self, cluster: SimulatedCluster, trace: Trace) -> None:
        self._cluster = cluster
        self._trace = trace
        self._cluster_id: str | None = None
        self._leaders: dict[int, tuple[int, UUID]] = {}  # epoch → broker and its directory
        self._committed: dict[int, bytes] = {}  # base offset → batch
        self._committed_end = 0
        self._replaced_s: dict[Process, float] = {}  # when a leader of a newer epoch was first observed
        self._checked: dict[Process, int] = {}  # process → offset up to which its log was compared
        self._reported: set[tuple[str, int]] = set()

    @property
    def epoch_count(self) -> int:
        """The number of epochs that had a leader."""
        return len(self._leaders)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()

    def check(self) -> None:
        for node, broker in active_controllers(self._cluster):
            self._check_leader(node, broker)
            self._check_replaced(node, broker)
        for node, broker in running_brokers(self._cluster):
            self._check_cluster_id(node, broker)
            if (log := metadata_log(broker)) is not None:
                self._check_log(node, log)

    def _report(self, what: str, node: SimulatedBroker, details: str) -> None:
        """Records a problem, each kind (`what`) once for each broker."""
        if (what, node.node_id) not in self._reported:
            self._reported.add((what, node.node_id))
            self._trace.record_problem(f"{what}: {details}")

    def _check_cluster_id(self, node: SimulatedBroker, broker: Broker) -> None:
        if not broker.cluster_id:
            return
        self._cluster_id = self._cluster_id or broker.cluster_id
        if broker.cluster_id != self._cluster_id:
            self._report(
                "two clusters", node, f"{node.host} belongs to {broker.cluster_id}, others to {self._cluster_id}"
            )

    def _check_leader(self, node: SimulatedBroker, broker: Broker) -> None:
        epoch, key = broker.quorum.epoch, (node.node_id, broker.log_dirs[0].directory_id)
        newest = max(self._leaders, default=-1)
        first = self._leaders.setdefault(epoch, key)
        if first != key:
            self._report("two controllers", node, f"brokers {first} and {key} both lead the metadata log in {epoch}")
        log = metadata_log(broker)
        if epoch > newest and log is not None and log.end < self._committed_end:
            self._report(
                "elected without committed metadata",
                node,
                f"{node.host} leads in epoch {epoch} and ends at {log.end}; {self._committed_end} is committed",
            )

    def _check_replaced(self, node: SimulatedBroker, broker: Broker) -> None:
        """A leader that another has replaced acts as controller for no longer than check-quorum
        allows.
        """
        process = node.node_id, node.starts
        assert node.process is not None
        if broker.quorum.epoch == max(self._leaders) or node.process.is_paused:
            self._replaced_s.pop(process, None)
            return
        now_s = self._cluster.loop.time()
        replaced_s = self._replaced_s.setdefault(process, now_s)
        if now_s - replaced_s > self._cluster.check_quorum_timeout_s + CHECK_QUORUM_SLACK_S:
            self._report("not resigned", node, f"{node.host} is still the controller of epoch {broker.quorum.epoch}")

    def _check_log(self, node: SimulatedBroker, log: PartitionLog) -> None:
        """Compares newly committed records of this process with the records committed before."""
        process = node.node_id, node.starts
        if (checked := self._checked.get(process, 0)) >= log.high_watermark:
            return
        for offset, batch in committed_batches(log, max(checked, log.start)):
            if self._committed.setdefault(offset, batch) != batch:
                self._report("committed metadata replaced", node, f"{node.host} has other records at {offset}")
                return
        self._checked[process] = log.high_watermark
        self._committed_end = max(self._committed_end, log.high_watermark)
