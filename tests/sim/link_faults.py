"""What can be done to the links between a mirror's two clusters. Each fault returns when it is mended."""

import asyncio
from random import Random

from tests.sim.cluster import SimulatedCluster
from tests.sim.faults import some_time

BETWEEN_FAULTS_S = 2.5  # on average
SLOW_LATENCY_S = (0.05, 0.6)

Way = tuple[str, str]


class LinkFaults:
    """Of all brokers of one cluster with all of the other, or with some of them."""

    def __init__(self, source: SimulatedCluster, target: SimulatedCluster, random: Random) -> None:
        self.happened: dict[str, int] = {}
        self._source = source
        self._target = target
        self._random = random

    async def run(self, until_s: float) -> None:
        """Until the loop's time is `until_s`; returns when all of it is mended."""
        loop = asyncio.get_running_loop()
        faults = (
            (3, "link cut", self._cut),
            (2, "link cut for long", self._cut_for_long),
            (2, "slow link", self._slow),
        )
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self._random.expovariate(1 / BETWEEN_FAULTS_S))
                if loop.time() >= until_s:
                    return
                (_, name, fault) = self._random.choices(faults, [weight for weight, _, _ in faults])[0]
                self.happened[name] = self.happened.get(name, 0) + 1
                tasks.create_task(fault())

    async def forget_unseen(self) -> None:
        """The source loses power while nobody there sees it, and has other records in place of those that it forgot when it is seen again."""
        ways, brokers, random = self._all(), list(self._source), self._random
        self._source.trace.add_line("the source is not seen")
        for way in ways:
            self._source.network.cut_link(*way)
        await some_time(random, 0.05, 0.5)
        for broker in brokers:
            broker.lose_power()
        await some_time(random, 0.05, 1)
        for broker in brokers:
            broker.power_on()
            if not broker.is_running:
                broker.start()
        await some_time(random, 1, 8)
        self._source.trace.add_line("the source is seen again")
        for way in ways:
            self._source.network.restore_link(*way)

    def _all(self) -> list[Way]:
        there, here = [one.host for one in self._source], [one.host for one in self._target]
        return [(a, b) for a in there for b in here] + [(b, a) for a in there for b in here]

    def _ways(self) -> list[Way]:
        """All, those in one direction, or those of one broker."""
        there, here = [one.host for one in self._source], [one.host for one in self._target]
        back = [(b, a) for a in there for b in here]
        forth = [(a, b) for a in there for b in here]
        one = self._random.choice(there + here)
        return self._random.choice(
            (forth + back, forth + back, forth, back, [way for way in forth + back if one in way])
        )

    async def _cut(self) -> None:
        await self._cut_for(0.3, 4)

    async def _cut_for_long(self) -> None:
        await self._cut_for(5, 20)

    async def _cut_for(self, least_s: float, most_s: float) -> None:
        ways = self._ways()
        self._source.trace.add_line(f"cuts {len(ways)} ways between the clusters, {_told(ways)}")
        with self._source.network.apart(ways):
            await some_time(self._random, least_s, most_s)
            self._source.trace.add_line(f"mends {_told(ways)}")

    async def _slow(self) -> None:
        ways, latency_s = self._ways(), self._random.uniform(*SLOW_LATENCY_S)
        self._source.trace.add_line(f"makes {_told(ways)} slow, {latency_s * 1000:.0f} ms a way")
        with self._source.network.late(ways, latency_s):
            await some_time(self._random, 1, 8)
            self._source.trace.add_line(f"{_told(ways)} are as they were")


def _told(ways: list[Way]) -> str:
    hosts = list(dict.fromkeys(a for a, _ in ways))
    return f"{', '.join(hosts)} → {', '.join(dict.fromkeys(b for _, b in ways))}"
