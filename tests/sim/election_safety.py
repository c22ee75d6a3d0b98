"""Invariant: every replica that may be elected has all committed records (rules 1, 3, 4 and 5).

It is checked when a leader's high watermark advances, and periodically. So a violation is found
when a replica wrongly becomes electable, not only in the rare run in which it becomes leader. It is
not checked in runs with mirrors, whose logs are truncated on purpose.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partition_leader import PartitionLeader
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import newest_image, partition_records, running_brokers
from tests.sim.history import TopicPartition
from tests.sim.trace import Trace

CHECK_S = 0.1


class ElectionSafetyMonitor:
    """Monitors one cluster."""

    def __init__(self, cluster: SimulatedCluster, trace: Trace) -> None:
        self._cluster = cluster
        self._trace = trace
        self._reported: set[tuple[TopicPartition, int]] = set()  # each replica is reported once
        self._newest_end = 0  # the highest end offset of an image that any broker had

    @contextmanager
    def observe_advances(self) -> Iterator[None]:
        """Checks at every advance of a leader's high watermark inside the block."""
        original = PartitionLeader.advance_high_watermark

        def advance(leader: PartitionLeader) -> None:
            before = leader._log.high_watermark
            original(leader)
            if leader._log.high_watermark > before:
                self._on_advance(leader)

        with patch.object(PartitionLeader, "advance_high_watermark", advance):
            yield

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self._check_all()

    def _check_all(self) -> None:
        image = newest_image(self._cluster)
        for tp, state in () if image is None else partition_records(image):
            assert image is not None
            for _, broker in running_brokers(self._cluster):
                observer = broker.partitions.get(*tp)
                if observer is not None and observer.topic_id == state.topic:
                    self._check(image, tp, state, observer)

    def _on_advance(self, leader: PartitionLeader) -> None:
        node, image = self._cluster.brokers.get(leader._broker_id), newest_image(self._cluster)
        tp = leader._log.topic, leader._log.partition
        if node is None or node.broker is None or image is None:
            return
        partition = node.broker.partitions.get(*tp)
        if partition is None or partition.log is not leader._log:
            return  # belongs to another cluster
        topic = image.topics.get(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        if state is not None and state.topic == partition.topic_id:
            self._check(image, tp, state, partition)

    def _check(self, image: MetadataImage, tp: TopicPartition, state: PartitionRecord, observer: Partition) -> None:
        self._newest_end = max(self._newest_end, image.end_offset)
        if image.end_offset < self._newest_end:
            # Only brokers that have stopped know the newest committed metadata, such as a smaller
            # ISR. Nothing is elected before a controller knows them.
            return
        for broker in (*state.isr, *state.eligible):
            replica = self._replica(image, broker, tp)
            if replica is None or replica.topic_id != state.topic or replica.log.end >= observer.log.high_watermark:
                continue
            if (tp, broker) not in self._reported:
                self._reported.add((tp, broker))
                self._trace.record_problem(
                    f"electable: broker {broker} may lead {tp[0]}-{tp[1]} (ISR {list(state.isr)}, eligible "
                    f"{list(state.eligible)}) and ends at "
                    f"{replica.log.end}; broker {observer._broker_id} has committed {observer.log.high_watermark}"
                )

    def _replica(self, image: MetadataImage, node_id: int, tp: TopicPartition) -> Partition | None:
        """The replica of the registered broker process; None if it is not known or not running."""
        registered, node = image.brokers.get(node_id), self._cluster.brokers[node_id]
        broker = node.broker
        if registered is None or broker is None or not node.is_running or not broker.log_dirs:
            return None
        if registered.epoch != broker.log_dirs[0].broker_epoch:
            return None  # its replicas are checked when it registers
        return broker.partitions.get(*tp)
