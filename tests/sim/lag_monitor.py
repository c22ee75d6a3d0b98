"""A client that polls committed offsets and log ends without joining a group, as lag
exporters do.
"""

import asyncio
from collections.abc import Sequence
from random import Random

from ottla_broker.wire.client import Client
from tests.sim.client import FAILURES, SimulatedClient, Workload
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess

HOST_PREFIX = "observer"
PAUSE_S = (0.02, 0.4)


class LagMonitor(SimulatedClient):
    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        groups: Sequence[str],
        topic_partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(workload, process, random)
        self._groups = groups
        self._topic_partitions = topic_partitions

    async def run(self) -> None:
        """Polls offsets and log ends over separate connections: a request without response delays
        only its own kind.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.retry_until_done(HOST_PREFIX, self._poll_groups))
            tasks.create_task(self.retry_until_done(HOST_PREFIX, self._poll_ends))

    async def _poll_groups(self, client: Client) -> bool:
        while not self.stopping:
            group = self.random.choice(self._groups)
            try:
                await self.committed_offsets(client, group, self._topic_partitions)
            except FAILURES as reason:
                self.record_failure(HOST_PREFIX, reason)
                self.forget_coordinator(group)
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
        return True

    async def _poll_ends(self, client: Client) -> bool:
        while not self.stopping:
            try:
                await self.latest_offset(client, self.random.choice(self._topic_partitions))
            except FAILURES as reason:
                self.record_failure(HOST_PREFIX, reason)
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
        return True
