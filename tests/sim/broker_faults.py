"""Faults of one broker and its machine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.fault_budget import FaultBudget

CLOCK_JUMP_MS = 600_000
SLOW_SYNC_S = (0.05, 1.5)


async def sleep_random(random: Random, least_s: float, most_s: float) -> None:
    """Sleeps for a random time that is log-uniform: each order of magnitude is equally likely."""
    await asyncio.sleep(least_s * (most_s / least_s) ** random.random())


class BrokerFaults:
    """Each fault returns when it is repaired; only a clock that jumped stays wrong."""

    def __init__(self, cluster: SimulatedCluster, random: Random, budget: FaultBudget) -> None:
        self._cluster = cluster
        self._random = random
        self._budget = budget

    def _trace(self, what: str) -> None:
        self._cluster.trace.add_line(what)

    async def _sleep_random(self, least_s: float, most_s: float) -> None:
        await sleep_random(self._random, least_s, most_s)

    async def run_on_all(
        self, brokers: Sequence[SimulatedBroker], fault: Callable[[SimulatedBroker], Awaitable[None]]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for broker in brokers:
                tasks.create_task(fault(broker))  # type: ignore[arg-type]

    async def crash(self, broker: SimulatedBroker) -> None:
        """Kills and restarts the broker; sometimes kills it again while it recovers."""
        for least_s, most_s in self._pauses_before_start():
            if broker.is_running:
                broker.kill()
            await self._sleep_random(least_s, most_s)
            if not broker.is_running:
                broker.start()
            await self._sleep_random(0.001, 0.1)

    async def power_loss(self, broker: SimulatedBroker) -> None:
        """Cuts the power if the budget allows it, otherwise kills the broker."""
        for least_s, most_s in self._pauses_before_start():
            if self._budget.allows_power_loss(broker):
                self._budget.record_power_loss(broker)
                broker.lose_power()
            elif broker.is_running:
                broker.kill()
            await self._sleep_random(least_s, most_s)
            broker.power_on()
            if not broker.is_running:
                broker.start()
            await self._sleep_random(0.001, 0.1)

    def _pauses_before_start(self) -> list[tuple[float, float]]:
        """For each of one or two kills, the shortest and the longest time in s until the start."""
        return [(0.05, 5)] + [(0.05, 2.0)] * (self._random.randrange(3) == 0)

    async def wipe(self, broker: SimulatedBroker) -> None:
        """Restarts the broker with an empty disk. The budget must allow it."""
        self._budget.record_wipe(broker)
        if self._random.randrange(2):
            broker.kill()
        else:
            broker.lose_power()
        broker.wipe()
        await self._sleep_random(0.05, 5)
        broker.power_on()
        if not broker.is_running:
            broker.start()

    async def clean_restart(self, broker: SimulatedBroker) -> None:
        await broker.stop()
        await self._sleep_random(0.05, 3)
        if not broker.is_running:
            broker.start()

    async def pause(self, broker: SimulatedBroker) -> None:
        process = broker.process
        assert process is not None
        self._trace(f"pauses {broker.host}")
        process.pause()
        await self._sleep_random(0.1, 15)
        self._trace(f"resumes {broker.host}")
        process.resume()

    async def slow_disk(self, broker: SimulatedBroker) -> None:
        normal, random = broker.disk.sync_s, self._random
        self._trace(f"slows the disk of {broker.host}")
        broker.disk.sync_s = lambda: random.uniform(*SLOW_SYNC_S)
        await self._sleep_random(1, 10)
        if self._random.randrange(2) and broker.is_running:  # with much unsynced data
            await self.power_loss(broker)
        self._trace(f"restores the disk speed of {broker.host}")
        broker.disk.sync_s = normal

    async def full_disk(self, broker: SimulatedBroker) -> None:
        self._trace(f"fills the disk of {broker.host}")
        broker.disk.full = True
        await self._sleep_random(0.5, 5)
        if self._random.randrange(3) == 0 and broker.is_running:
            await self.crash(broker)
            await self._sleep_random(0.5, 2)
        self._trace(f"frees the disk of {broker.host}")
        broker.disk.full = False

    async def clock_jump(self, broker: SimulatedBroker) -> None:
        broker.clock_offset_ms = self._random.randrange(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
        self._trace(f"sets the clock offset of {broker.host} to {broker.clock_offset_ms:+} ms")
