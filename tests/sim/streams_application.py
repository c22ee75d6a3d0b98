"""The threads of a Kafka Streams application (KIP-1071). They come and go, so that active and
standby tasks move between threads and between processes all the time.
"""

import asyncio
from functools import partial
from random import Random
from typing import Any

from tests.sim.client import SimulatedClient, Workload
from tests.sim.processes import SimulatedProcess
from tests.sim.simulation import NewClient
from tests.sim.streams_group_member import StreamsGroupMember

GROUP = "application"
THREADS = (3, 4, 5)  # two in each process; if their number is odd, the last process has one
STAYS_S = (2.0, 8.0)
AWAY_S = (0.0, 1.0)


class StreamsThread(SimulatedClient):
    """Leaves the group again and again, and joins it as another member each time."""

    def __init__(
        self, workload: Workload, process: SimulatedProcess, random: Random, topic: str, rack: str, number: int
    ) -> None:
        super().__init__(workload, process, random)
        self._topic = topic
        self._rack = rack
        self._number = number

    async def run(self) -> None:
        counts = self.workload.counts
        while not self.stopping:
            member = StreamsGroupMember(
                self.workload, self.process, self.random, GROUP, self._topic, self._rack, self._number
            )
            member.leaves_at_s = self.loop.time() + self.random.uniform(*STAYS_S)
            await member.run()
            counts["threads left"] = counts.get("threads left", 0) + 1
            await asyncio.sleep(self.random.uniform(*AWAY_S))


def create_threads(create: NewClient, random: Random, topic: str) -> list[Any]:
    return [
        create(
            partial(StreamsThread, topic=topic, rack=random.choice(("", f"rack-{number}")), number=number),
            f"thread-{number}",
        )
        for number in range(random.choice(THREADS))
    ]
