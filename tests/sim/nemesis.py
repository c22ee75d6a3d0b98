"""What goes wrong in a run, and when: chosen by the seed, one fault after the other and some at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.sim.cluster import Cluster, SimulatedBroker

CLOCK_JUMP_MS = 600_000
BETWEEN_FAULTS_S = 2.5  # on average
SLOW_SYNC_S = (0.05, 1.5)

Fault = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the promises of a run cover. `power_loss`: only where acks wait for the device."""

    power_loss: bool


class Nemesis:
    """One per run. `clients`: hosts that talk to the brokers. Everything it breaks it mends, and `end` mends the rest."""

    def __init__(self, cluster: Cluster, clients: Sequence[str], random: Random, allowed: Allowed) -> None:
        self.cluster = cluster
        self.random = random
        self.happened: dict[str, int] = {}
        self._clients = list(clients)
        self._allowed = allowed
        self._busy: set[int] = set()  # brokers that something is being done to
        self._faults: list[tuple[int, str, Callable[[SimulatedBroker], Awaitable[None]]]] = [
            (4, "crash", self._crash),
            (3, "clean restart", self._clean_restart),
            (2, "pause", self._pause),
            (2, "slow disk", self._slow_disk),
            (2, "clock jump", self._clock_jump),
            (3, "cut client", self._cut_client),
            (2, "full disk", self._full_disk),
        ]
        if allowed.power_loss:
            self._faults.append((5, "power loss", self._power_loss))

    async def run(self, until_s: float) -> None:
        """Breaks things until the loop's time is `until_s`, and returns when all of it is mended."""
        loop = asyncio.get_running_loop()
        pause_s = self.random.choice((0.3, BETWEEN_FAULTS_S))  # sometimes while everything is still new
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self.random.expovariate(1 / pause_s))
                pause_s = BETWEEN_FAULTS_S
                if loop.time() >= until_s:
                    return
                tasks.create_task(self._strike())

    async def _strike(self) -> None:
        (_, name, fault) = self.random.choices(self._faults, [weight for weight, _, _ in self._faults])[0]
        broker = self.random.choice(list(self.cluster))
        if broker.node_id in self._busy or not broker.up:
            return
        self._busy.add(broker.node_id)
        self.happened[name] = self.happened.get(name, 0) + 1
        try:
            await fault(broker)
        finally:
            self._busy.discard(broker.node_id)

    def _say(self, what: str) -> None:
        self.cluster.trace.say(what)

    async def _some_time(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(least_s * (most_s / least_s) ** self.random.random())

    # --- faults

    async def _crash(self, broker: SimulatedBroker) -> None:
        broker.kill()
        await self._some_time(0.05, 5)
        broker.start()
        if self.random.randrange(3) == 0:  # and once more while it recovers
            await self._some_time(0.001, 0.1)
            if broker.runs:
                broker.kill()
                await self._some_time(0.05, 2)
                broker.start()

    async def _power_loss(self, broker: SimulatedBroker) -> None:
        broker.lose_power()
        await self._some_time(0.05, 5)
        broker.power_up()
        broker.start()
        if self.random.randrange(3) == 0:
            await self._some_time(0.001, 0.1)
            broker.lose_power()
            await self._some_time(0.05, 2)
            broker.power_up()
            broker.start()

    async def _clean_restart(self, broker: SimulatedBroker) -> None:
        await broker.stop()
        await self._some_time(0.05, 3)
        broker.start()

    async def _pause(self, broker: SimulatedBroker) -> None:
        process = broker.process
        assert process is not None
        self._say(f"stops {broker.host}")
        process.stop()
        await self._some_time(0.1, 15)
        self._say(f"lets {broker.host} go on")
        process.go_on()

    async def _slow_disk(self, broker: SimulatedBroker) -> None:
        usual, random = broker.disk.sync_s, self.random
        self._say(f"makes the disk of {broker.host} slow")
        broker.disk.sync_s = lambda: random.uniform(*SLOW_SYNC_S)
        await self._some_time(1, 10)
        if self.random.randrange(2) and broker.runs:  # with much that is not on the device yet
            await (self._power_loss if self._allowed.power_loss else self._crash)(broker)
        self._say(f"the disk of {broker.host} is as it was")
        broker.disk.sync_s = usual

    async def _full_disk(self, broker: SimulatedBroker) -> None:
        self._say(f"fills the disk of {broker.host}")
        broker.disk.full = True
        await self._some_time(0.5, 5)
        if self.random.randrange(3) == 0 and broker.runs:
            broker.kill()
            await self._some_time(0.05, 2)
            broker.start()
            await self._some_time(0.5, 2)
        self._say(f"there is room on the disk of {broker.host} again")
        broker.disk.full = False

    async def _clock_jump(self, broker: SimulatedBroker) -> None:
        broker.clock_offset_ms = self.random.randrange(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
        self._say(f"sets the clock of {broker.host} to {broker.clock_offset_ms:+} ms")

    async def _cut_client(self, broker: SimulatedBroker) -> None:
        network, client = self.cluster.network, self.random.choice(self._clients)
        ways = self.random.choice(
            [
                [(client, broker.host), (broker.host, client)],
                [(client, broker.host)],
                [(broker.host, client)],
            ]
        )
        self._say("cuts " + " and ".join(f"{a} → {b}" for a, b in ways))
        for way in ways:
            network.cut(*way)
        await self._some_time(0.2, 12)
        self._say("mends " + " and ".join(f"{a} → {b}" for a, b in ways))
        for way in ways:
            network.mend(*way)
