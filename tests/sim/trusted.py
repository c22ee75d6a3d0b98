"""Whoever the metadata trust with a partition has everything that is committed there: what elections rest on (design rules 1, 3, 4 and 5).

Not where logs are cut on purpose, as mirrors' are. It is looked at when a leader's high watermark rises, and now and then: a broken rule shows when somebody is trusted who should not be, and not only in the
rare run in which that one comes to lead.
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
from tests.sim.history import Place
from tests.sim.standing import newest_image, partitions, running
from tests.sim.trace import Trace

LOOK_S = 0.1


class Trusted:
    """Of one cluster."""

    def __init__(self, cluster: SimulatedCluster, trace: Trace) -> None:
        self._cluster = cluster
        self._trace = trace
        self._told: set[tuple[Place, int]] = set()  # one sentence for each is enough

    @contextmanager
    def advances(self) -> Iterator[None]:
        """Inside of it every rise of a leader's high watermark is looked at."""
        properly = PartitionLeader.advance_high_watermark

        def advance(leader: PartitionLeader) -> None:
            before = leader._log.high_watermark
            properly(leader)
            if leader._log.high_watermark > before:
                self._rose(leader)

        with patch.object(PartitionLeader, "advance_high_watermark", advance):
            yield

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look_at_everything()

    def _look_at_everything(self) -> None:
        image = newest_image(self._cluster)
        for place, state in () if image is None else partitions(image):
            assert image is not None
            for _, broker in running(self._cluster):
                knows = broker.partitions.get(*place)
                if knows is not None and knows.topic_id == state.topic:
                    self._look(image, place, state, knows)

    def _rose(self, leader: PartitionLeader) -> None:
        node, image = self._cluster.brokers.get(leader._broker_id), newest_image(self._cluster)
        place = leader._log.topic, leader._log.partition
        if node is None or node.broker is None or image is None:
            return
        partition = node.broker.partitions.get(*place)
        if partition is None or partition.log is not leader._log:
            return  # of another cluster
        topic = image.topics.get(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        if state is not None and state.topic == partition.topic_id:
            self._look(image, place, state, partition)

    def _look(self, image: MetadataImage, place: Place, state: PartitionRecord, knows: Partition) -> None:
        for broker in (*state.isr, *state.eligible):
            has = self._replica(image, broker, place)
            if has is None or has.topic_id != state.topic or has.log.end >= knows.log.high_watermark:
                continue
            if (place, broker) not in self._told:
                self._told.add((place, broker))
                self._trace.problem(
                    f"trusted: broker {broker} is trusted with {place[0]}-{place[1]} (ISR {list(state.isr)}, eligible {list(state.eligible)}) and ends at "
                    f"{has.log.end}; broker {knows._broker_id} has committed {knows.log.high_watermark}"
                )

    def _replica(self, image: MetadataImage, node_id: int, place: Place) -> Partition | None:
        """Of the life that is registered; None when it is not to be seen."""
        registered, node = image.brokers.get(node_id), self._cluster.brokers[node_id]
        broker = node.broker
        if registered is None or broker is None or not node.is_running or not broker.log_dirs:
            return None
        if registered.epoch != broker.log_dirs[0].broker_epoch:
            return None  # what becomes of its replicas is decided when it registers
        return broker.partitions.get(*place)
