"""What can be done to one broker and its machine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tests.sim.allowed import Allowed
from tests.sim.cluster import SimulatedBroker, SimulatedCluster

CLOCK_JUMP_MS = 600_000
SLOW_SYNC_S = (0.05, 1.5)


async def some_time(random: Random, least_s: float, most_s: float) -> None:
    """Short times as often as long ones."""
    await asyncio.sleep(least_s * (most_s / least_s) ** random.random())


class Faults:
    """Each returns when it is mended."""

    def __init__(self, cluster: SimulatedCluster, random: Random, allowed: Allowed) -> None:
        self._cluster = cluster
        self._random = random
        self._allowed = allowed

    def _say(self, what: str) -> None:
        self._cluster.trace.add_line(what)

    async def _some_time(self, least_s: float, most_s: float) -> None:
        await some_time(self._random, least_s, most_s)

    async def together(
        self, brokers: Sequence[SimulatedBroker], fault: Callable[[SimulatedBroker], Awaitable[None]]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for broker in brokers:
                tasks.create_task(fault(broker))  # type: ignore[arg-type]

    async def crash(self, broker: SimulatedBroker) -> None:
        """Killed, and started again; sometimes killed once more while it recovers."""
        for least_s, most_s in self._twice_at_times(5):
            if broker.is_running:
                broker.kill()
            await self._some_time(least_s, most_s)
            if not broker.is_running:
                broker.start()
            await self._some_time(0.001, 0.1)

    async def power_loss(self, broker: SimulatedBroker) -> None:
        """Of power, as far as the promise allows it now; else it is only killed."""
        for least_s, most_s in self._twice_at_times(5):
            if self._allowed.power_loss(broker):
                self._allowed.lost_power(broker)
                broker.lose_power()
            elif broker.is_running:
                broker.kill()
            await self._some_time(least_s, most_s)
            broker.power_on()
            if not broker.is_running:
                broker.start()
            await self._some_time(0.001, 0.1)

    def _twice_at_times(self, most_s: float) -> list[tuple[float, float]]:
        return [(0.05, most_s)] + [(0.05, 2.0)] * (self._random.randrange(3) == 0)

    async def wipe(self, broker: SimulatedBroker) -> None:
        """Comes back with an empty disk. Its promise must allow that."""
        self._allowed.lost_disk(broker)
        if self._random.randrange(2):
            broker.kill()
        else:
            broker.lose_power()
        broker.wipe()
        await self._some_time(0.05, 5)
        broker.power_on()
        if not broker.is_running:
            broker.start()

    async def clean_restart(self, broker: SimulatedBroker) -> None:
        await broker.stop()
        await self._some_time(0.05, 3)
        if not broker.is_running:
            broker.start()

    async def pause(self, broker: SimulatedBroker) -> None:
        process = broker.process
        assert process is not None
        self._say(f"stops {broker.host}")
        process.pause()
        await self._some_time(0.1, 15)
        self._say(f"lets {broker.host} go on")
        process.resume()

    async def slow_disk(self, broker: SimulatedBroker) -> None:
        usual, random = broker.disk.sync_s, self._random
        self._say(f"makes the disk of {broker.host} slow")
        broker.disk.sync_s = lambda: random.uniform(*SLOW_SYNC_S)
        await self._some_time(1, 10)
        if self._random.randrange(2) and broker.is_running:  # with much that is not on the device yet
            await self.power_loss(broker)
        self._say(f"the disk of {broker.host} is as it was")
        broker.disk.sync_s = usual

    async def full_disk(self, broker: SimulatedBroker) -> None:
        self._say(f"fills the disk of {broker.host}")
        broker.disk.full = True
        await self._some_time(0.5, 5)
        if self._random.randrange(3) == 0 and broker.is_running:
            await self.crash(broker)
            await self._some_time(0.5, 2)
        self._say(f"there is room on the disk of {broker.host} again")
        broker.disk.full = False

    async def clock_jump(self, broker: SimulatedBroker) -> None:
        broker.clock_offset_ms = self._random.randrange(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
        self._say(f"sets the clock of {broker.host} to {broker.clock_offset_ms:+} ms")
